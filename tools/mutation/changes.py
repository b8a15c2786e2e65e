"""Changes that may be made: mutants of product lines, their order in a draw, files that list them.

Pure logic: nothing here builds or runs anything. tests/mutation/changes_test.py tests it.
"""

import collections
import contextlib
import dataclasses
import hashlib
import io
import re

# Calls whose text is for people: changes inside their parentheses are not drawn.
MESSAGE_CALLS = (r"CHECK", r"make_error", r"Error", r"log_\w+", r"log", r"static_assert", r"concat",
                 r"refuse", r"unsupported", r"fail")
ERROR_MAKER = re.compile(r"^(?:inline |static )?Error (\w+)\(", re.M)
NEVER = re.compile(r"^\s*(//|#|namespace\b|using\b|static_assert|template\b|public:|private:|"
                   r"[\]})]+[;,]?\s*(//.*)?$)")


@dataclasses.dataclass(frozen=True)
class Change:
    """One line of one file, replaced. `file` is relative to the root; `line` counts from 1."""
    file: str
    line: int
    was: str
    becomes: str

    def identity(self):
        """The same for the same change wherever the line has moved to."""
        return self.file, self.was.strip(), self.becomes.strip()

    def apply(self, text):
        lines = text.splitlines(keepends=True)
        if lines[self.line - 1].rstrip("\n") != self.was:
            raise ValueError(f"{self.file}:{self.line} is not {self.was!r}")
        lines[self.line - 1] = self.becomes + "\n"
        return "".join(lines)


def message_columns(text, makers=()):
    """Per line, the set of columns that are a comment, a string or inside a message call: one of
    MESSAGE_CALLS, or of `makers` or a function of this text that returns an Error."""
    names = {*MESSAGE_CALLS, *makers, *ERROR_MAKER.findall(text)}
    message_call = re.compile(rf"\b({'|'.join(sorted(names))})\s*[({{]")
    columns = [set() for _ in text.splitlines()]
    depth_end = None  # of parentheses at which the message call ends
    depth = 0
    for number, line in enumerate(text.splitlines()):
        at = 0
        while at < len(line):
            if line.startswith("//", at):
                columns[number].update(range(at, len(line)))
                break
            if line[at] in "\"'" and not (line[at] == "'" and at and line[at - 1].isalnum()):
                end = at + 1
                while end < len(line) and line[end] != line[at]:
                    end += 2 if line[end] == "\\" else 1
                if line[at] == '"' or depth_end is not None:
                    columns[number].update(range(at, min(end + 1, len(line))))
                at = end + 1
                continue
            if depth_end is None:
                call = message_call.match(line, at)
                if call and not (at and (line[at - 1].isalnum() or line[at - 1] in "_:.")):
                    depth_end = depth
                    columns[number].update(range(at, call.end()))
                    depth += 1
                    at = call.end()
                    continue
            if line[at] in "([{":
                depth += 1
            elif line[at] in ")]}":
                depth -= 1
            if depth_end is not None:
                columns[number].add(at)
                if depth <= depth_end:
                    depth_end = None
            at += 1
    return columns


def changed_columns(was, becomes):
    """[begin, end) of the part of `was` that differs."""
    begin = 0
    while begin < min(len(was), len(becomes)) and was[begin] == becomes[begin]:
        begin += 1
    end, other = len(was), len(becomes)
    while end > begin and other > begin and was[end - 1] == becomes[other - 1]:
        end -= 1
        other -= 1
    return begin, max(end, begin + 1)


STRING = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'')
NO_TOKENS = re.compile(
    r"[<>!=]==|!=\s*=|\(\s*,|[(,;]\s*[/%|^]|\+[/%]|[/%]\+|-[/%]|^[/%|^](?!\*|/)")


def never_compiles(was, becomes):
    """Says if a change is plainly no C++, by the form that clang-format gives code; to try it would
    cost a compilation. Not every such change is found."""
    begin, end = changed_columns(was, becomes)
    if becomes[begin:begin + 1] == "=" and was[begin - 1:begin] in ("<", ">"):
        begin -= 1  # `<` is part of what became `<=`
    old, before, after = was[begin:end], was[begin - 1:begin], was[begin + 1:begin + 2]
    removed = becomes.strip() == f"/*{was.strip()}*/"
    plain = STRING.sub('""', was)
    new = "" if removed else STRING.sub('""', becomes)
    if any(plain.count(left) - plain.count(right) != new.count(left) - new.count(right)
           for left, right in ("()", "[]", "{}")):
        return True
    if removed:
        return False
    if old[:1].isdigit() and re.search(r"(?<!\w)[A-Za-z_]\w*$", was[:begin]):
        return True  # the number is part of a name
    if old[:1] in ("<", ">") and before != " " and was[begin:begin + 2] not in ("<<", ">>", "->"):
        return True  # a bracket of a template, and not an operator
    if old[:1] in ("&", "*") and before not in (" ", "(", "!", "") and after == " ":
        return True  # of a type
    return bool(NO_TOKENS.search(new.strip()) and not NO_TOKENS.search(plain.strip()))


def candidates(file, text, makers=()):
    """Every change that universalmutator makes to product text of a C++ file; `makers` as in
    message_columns."""
    from universalmutator import mutator
    with contextlib.redirect_stdout(io.StringIO()):
        made = mutator.mutants_regexp(
            text.splitlines(keepends=True), ignorePatterns=[], ignoreStringOnly=True,
            ruleFiles=["universal.rules", "c_like.rules", "cpp.rules"])
    lines = text.splitlines()
    silent = message_columns(text, makers)
    found = {}
    for number, mutant, *_ in made:
        was, becomes = lines[number - 1], mutant.rstrip("\n")
        if "\n" in becomes or NEVER.match(was) or was.split() == becomes.split():
            continue
        begin, end = changed_columns(was, becomes)
        if becomes.strip() == f"/*{was.strip()}*/":
            begin = len(was) - len(was.lstrip())
            end = begin + 1
        if all(column in silent[number - 1] for column in range(begin, end)) or \
                never_compiles(was, becomes):
            continue
        change = Change(file, number, was, becomes)
        found.setdefault((number, becomes), change)
    return list(found.values())


def includers(texts):
    """Which .cc files read each header or .inl, directly or not; `texts` by path under src/."""
    reads = {name: set(re.findall(r'^#include "([^"]+)"', text, re.M))
             for name, text in texts.items()}
    found = {name: set() for name in texts}
    for name in texts:
        if not name.endswith(".cc"):
            continue
        todo, seen = [name], {name}
        while todo:
            for other in reads.get(todo.pop(), ()):
                if other not in seen and other in texts:
                    seen.add(other)
                    todo.append(other)
        for other in seen - {name}:
            found[other].add(name)
    return found


def rank(change, seed):
    """Where a change stands in the draw: by its text, so that other edits do not reorder it."""
    words = "\0".join([str(seed), *change.identity()])
    return hashlib.sha256(words.encode()).hexdigest()


def draw(changes, seed):
    """All changes in a random order of lines that the seed decides; each line once, then again."""
    by_line = {}
    for change in changes:
        by_line.setdefault((change.file, change.line), []).append(change)
    keyed, seen = [], collections.Counter()
    for (file, _), group in sorted(by_line.items()):
        group.sort(key=lambda change: rank(change, seed))
        same = file, group[0].was.strip()
        place = hashlib.sha256(f"{seed}\0{same}\0{seen[same]}".encode()).hexdigest()
        seen[same] += 1
        keyed.extend((turn, place, change) for turn, change in enumerate(group))
    keyed.sort(key=lambda entry: entry[:2])
    return [change for *_, change in keyed]


def parse_blocks(text, name, required):
    """Blocks of `key: value` lines with an empty line between two; lines with # are comments."""
    blocks, block = [], {}
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.startswith("#"):
            continue
        if not line.strip():
            if block:
                missing = [key for key in required if key not in block]
                if missing:
                    raise ValueError(f"{name} line {number}: expected {missing[0]}:, found a block "
                                     f"without it; add the line")
                blocks.append(block)
            block = {}
            continue
        key, colon, value = line.partition(":")
        if not colon or key not in required or key in block:
            raise ValueError(f"{name} line {number}: expected one of {', '.join(required)} and a "
                             f"colon, each once in a block, found {line[:60]!r}")
        block[key] = value.strip()
    return blocks


def change_of(block, text):
    """The change that a block describes. The line must be in the text exactly once."""
    places = [i for i, line in enumerate(text.splitlines(), 1) if line.strip() == block["was"]]
    if len(places) != 1:
        raise ValueError(f"{block['file']}: expected the line {block['was']!r} once, found it "
                         f"{len(places)} times; write the change anew")
    was = text.splitlines()[places[0] - 1]
    indent = was[:len(was) - len(was.lstrip())]
    return Change(block["file"], places[0], was, indent + block["becomes"])


@dataclasses.dataclass
class Score:
    """Counts of one draw. Marked ones survive, and are left out of both sides of the score."""
    killed: int = 0
    survived: int = 0
    marked: int = 0
    unseen: int = 0     # by the parts of the tests that there was time for
    undecided: int = 0  # there was time for none

    @property
    def counted(self):
        return self.killed + self.survived + self.marked + self.unseen + self.undecided

    def add(self, other):
        for field in dataclasses.fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    @property
    def percent(self):
        return 100.0 * self.killed / max(1, self.killed + self.survived)

    @property
    def percent_least(self):
        """If all that are not decided survive."""
        return 100.0 * self.killed / max(1, self.counted - self.marked)

    def text(self):
        words = (f"{self.killed} of {self.killed + self.survived} killed, {self.percent:.1f} %; "
                 f"{self.marked} marked equivalent")
        if self.unseen + self.undecided == 0:
            return words
        return (f"{words}; {self.unseen} unseen by the tests that there was time for and "
                f"{self.undecided} undecided, run it again ({self.percent_least:.1f} % if all "
                "survive)")
