"""Which sources read bytes from outside, and their fuzz entries: a part of tools/tidy.py.

A source reads bytes from outside if it calls a decoder (DECODER) or if its header declares a
function whose name begins with `parse` and which takes text, bytes or JSON (PARSER). Each needs a
line in tools/outside_bytes.txt: the source, then one of
  SOME_fuzz       a file SOME_fuzz.cc with inputs in tests/corpus/SOME_fuzz
  SOME_fuzz_test  a test that makes its own inputs
  flags           words that whoever starts the program chooses; tables of tests hold them
  system          files of the operating system, or bytes that are passed on as they are
What this is not: a proof that the entry reaches the source.
"""

import re

DECODER = re.compile(r"\b(parse_json|read_text_file|YAML::Load\w*|toml::parse\w*|getline|"
                     r"from_chars|strto\w+|sscanf)\s*\(|\bRE2(::Set)?\b")
PARSER = re.compile(r"\bparse\w*\(\s*(?:Api \w+, )?(?:std::string_view|const std::string&|"
                    r"std::span<const std::(?:byte|string)>|const Json&|const ConfigSection&)")
SKIPPED = re.compile(r"(_test|_fuzz|_tool|/test_\w+)\.(cc|h)$|^src/testing/")
KINDS = ("flags", "system")


def without_words(text):
    """C++ without its comments and literals."""
    code = re.sub(r"//.*", "", text)
    return re.sub(r'"(\\.|[^"\\\n])*"', '""', code)


def parsers(root, paths):
    """The sources that read bytes from outside, as paths from the root."""
    found = set()
    for path in paths:
        name = str(path.relative_to(root))
        if not name.startswith("src/") or SKIPPED.search(name):
            continue
        code = without_words(path.read_text())
        source = path.with_suffix(".cc")
        if path.suffix == ".h" and PARSER.search(code):
            found.add(str((source if source.exists() else path).relative_to(root)))
        if path.suffix == ".cc" and DECODER.search(code):
            found.add(name)
    return found


def faults(root, paths):
    """[(path, line, words)]: what the table lacks or names in vain; entries without inputs."""
    table = root / "tools/outside_bytes.txt"
    found = parsers(root, paths)
    entries = {path.stem for path in paths if path.stem.endswith(("_fuzz", "_fuzz_test"))}
    listed = set()
    wrong = []
    for number, line in enumerate(table.read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        source, _, entry = line.partition(" ")
        if source not in found or source in listed:
            wrong.append((table, number, f"{source} reads no bytes from outside, or stands twice"))
        if entry not in KINDS and entry not in entries:
            wrong.append((table, number, f"there is no fuzz entry {entry}"))
        listed.add(source)
    for source in sorted(found - listed):
        wrong.append((root / source, 1, "reads bytes from outside: name its fuzz entry in "
                                        "tools/outside_bytes.txt"))
    for entry in sorted(entry for entry in entries if entry.endswith("_fuzz")):
        corpus = root / "tests/corpus" / entry
        if not corpus.is_dir() or not any(corpus.iterdir()):
            wrong.append((table, 1, f"tests/corpus/{entry} has no inputs"))
    return wrong
