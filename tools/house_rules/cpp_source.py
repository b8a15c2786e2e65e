"""C++ read just closely enough for house rules: the functions of a file with their parameters.

Text without comments and literals is cut at braces, parentheses and semicolons; what stands before
a brace says whether it opens a namespace, a class, a function or something else. clang-format has
been over every file, and macros do not hide braces. What this is not: a compiler.
"""

import dataclasses
import re

LITERAL = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\((.*?)\)\1"|"(?:\\.|[^"\\\n])*"'
                     r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'", re.S)
MARK = re.compile(r"[{}();]")
TYPE = re.compile(r"(?:template\s*<.*>\s*)?(?:typedef\s+)?(?:class|struct|union|enum)\b[^()=]*$",
                  re.S)
ATTRIBUTES = re.compile(r"\b(?:alignas|__launch_bounds__|__attribute__)\s*\([^()]*(?:\([^()]*\)"
                        r"[^()]*)*\)|\[\[.*?\]\]", re.S)
NAME = re.compile(r"([~\w:]+|operator\s*\S+)\s*$")
LABEL = re.compile(r"\b(?:public|private|protected)\s*:(?!:)")
NOT_A_NAME = {"if", "for", "while", "switch", "return", "decltype", "sizeof", "static_assert",
              "catch", "requires", "noexcept", "defined", "explicit", "using"}


@dataclasses.dataclass
class Function:
    name: str          # the last part: `read` of `File::read`
    line: int          # of its first word
    opens: int         # of the opening brace, or of the semicolon
    end: int           # of the closing brace, or of the semicolon
    parameters: list   # texts, without defaults
    body: bool
    head: str
    scope: str         # "file", "class"
    access: str        # "public", "private"


def bare(text):
    """C++ without its comments and literals; lines stay where they are."""
    def blank(found):
        words = found[0]
        left = '""' if words[0] in '"R' else "''" if words[0] == "'" else " "
        return left + "\n" * words.count("\n")
    return LITERAL.sub(blank, text)


def without_preprocessor(code):
    """The same without lines of the preprocessor, macros that go on over lines included."""
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda found: "\n" * found[0].count("\n"), code,
                  flags=re.M)


def split_parameters(text):
    """'int a, std::map<K, V> b = {1, 2}' -> ['int a', 'std::map<K, V> b']."""
    found, depth, begin = [], 0, 0
    for at, sign in enumerate(text):
        if sign in "(<[{":
            depth += 1
        elif sign in ")]}" or (sign == ">" and text[at - 1:at] != "-"):
            depth -= 1
        elif sign == "," and depth == 0:
            found.append(text[begin:at])
            begin = at + 1
    found.append(text[begin:])
    plain = [" ".join(one.split("=")[0].split()) for one in found]
    return [one for one in plain if one and one != "void"]


def signature(head):
    """(name, parameters) of what stands before a body or a semicolon; None: no function."""
    head = ATTRIBUTES.sub(" ", head)
    operator = re.search(r"\boperator\s*\(\s*\)", head)
    opened = head.find("(", operator.end() if operator else 0)
    while opened >= 0:
        found = NAME.search(head[:operator.end()] if operator else head[:opened])
        if not found or "=" in re.sub(r"operator\s*\S+|<[^<>]*>", "", head[:opened]):
            return None
        name = found[1].split("::")[-1] if not operator else "operator()"
        if name in NOT_A_NAME:
            return None
        depth = 0
        for at in range(opened, len(head)):
            depth += {"(": 1, ")": -1}.get(head[at], 0)
            if depth == 0:
                return name, split_parameters(head[opened + 1:at])
        return None
    return None


class Reader:
    """Walks bare code mark by mark; `found` are the functions of files, namespaces and classes."""

    def __init__(self, code):
        self.code = without_preprocessor(code)
        self.found = []
        self.scopes = []    # [kind, access outside of it, its Function or None]
        self.begin = 0      # where the present declaration begins
        self.access = "public"
        self.depth = 0      # of braces within a body or an initializer

    def line(self, at):
        return self.code.count("\n", 0, at) + 1

    def kind(self):
        return self.scopes[-1][0] if self.scopes else "file"

    def note(self, words, head, at, body):
        known = signature(words)
        if not known or words.startswith(("using", "return", "friend", "typedef")):
            return None
        first = self.begin + len(head) - len(head.lstrip())
        function = Function(known[0], self.line(first), self.line(at), self.line(at), known[1],
                            body, words, self.kind(), self.access)
        self.found.append(function)
        return function

    def open(self, words, head, at):
        if re.search(r"\)[^()]*(?<!:):(?!:).*[\w>]$", words, re.S):
            self.depth = 1  # a member initialized in braces; the body comes later
            return
        kind, function = "other", None
        if re.match(r"(inline\s+)?namespace\b|extern\s*\"\"$", words):
            kind = "file"
        elif TYPE.match(ATTRIBUTES.sub(" ", words)) and "enum" not in words.split():
            kind = "class"
        else:
            function = self.note(words, head, at, True)
        self.scopes.append([kind, self.access, function])
        self.access = "private" if kind == "class" and words.startswith("class") else "public"
        if kind != "other" or function:
            self.begin = at + 1

    def close(self, at):
        if not self.scopes:
            return
        _, self.access, function = self.scopes.pop()
        if function:
            function.end = self.line(at)
        self.begin = at + 1

    def mark(self, sign, at):
        if self.depth or self.kind() == "other":
            self.depth += {"{": 1, "}": -1, ";": 0}[sign]
            if self.depth < 0:
                self.depth = 0
                self.close(at)
            return
        head = self.code[self.begin:at]
        for label in LABEL.finditer(head):
            self.access = "public" if label[0].startswith("public") else "private"
        words = LABEL.sub(" ", head).strip()
        head = LABEL.sub(lambda found: " " * len(found[0]), head)
        if sign == "{":
            self.open(words, head, at)
        elif sign == "}":
            self.close(at)
        else:
            self.note(words, head, at, False)
            self.begin = at + 1

    def read(self):
        parentheses = 0
        for mark in MARK.finditer(self.code):
            if mark[0] in "()":
                parentheses += 1 if mark[0] == "(" else -1
            elif parentheses == 0:
                self.mark(mark[0], mark.start())
        return self.found


def functions(code):
    """The functions declared or defined in bare() code; not lambdas, nothing inside bodies."""
    return Reader(code).read()
