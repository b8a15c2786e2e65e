"""Which sources read bytes from outside, and whether a fuzz entry reaches each of them.

A source reads bytes from outside if it calls a decoder (DECODER) or if its header declares a
function whose name begins with `parse` and which takes text, bytes or JSON (PARSER). The fuzz
entries are the files *_fuzz.cc and *_fuzz_test.cc. An entry reaches a source if its includes lead
there: from a header on to what implements it, and from there to what that includes. A source that
no entry reaches needs a line in tools/house_rules/outside_bytes.txt: the source, then one of
  SOME_fuzz       an entry that feeds the decoder which this source calls
  flags           words that whoever starts the program chooses; tables of tests hold them
  system          files of the operating system, or bytes that are passed on as they are
What this is not: a proof that the entry calls the source.
"""

import re

DECODER = re.compile(r"\b(parse_json|read_text_file|YAML::Load\w*|toml::parse\w*|getline|"
                     r"from_chars|strto\w+|sscanf)\s*\(|\bRE2(::Set)?\b")
PARSER = re.compile(r"\bparse\w*\(\s*(?:Api \w+, )?(?:std::string_view|const std::string&|"
                    r"std::span<const std::(?:byte|string)>|const Json&|const ConfigSection&)")
SKIPPED = re.compile(r"(_test|_fuzz|_tool|/test_\w+)\.(cc|h)$|^src/testing/")
ENTRY = re.compile(r"^src/.*_(fuzz|fuzz_test)\.cc$")
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)
TABLE = "tools/house_rules/outside_bytes.txt"
KINDS = ("flags", "system")


def without_words(text):
    """C++ without its comments and literals."""
    code = re.sub(r"//.*", "", text)
    return re.sub(r'"(\\.|[^"\\\n])*"', '""', code)


def parsers(texts):
    """The sources that read bytes from outside. `texts` maps paths from the root to contents."""
    found = set()
    for name, text in texts.items():
        if not name.startswith("src/") or SKIPPED.search(name):
            continue
        code = without_words(text)
        source = name.removesuffix(".h") + ".cc"
        if name.endswith(".h") and PARSER.search(code):
            found.add(source if source in texts else name)
        if name.endswith(".cc") and DECODER.search(code):
            found.add(name)
    return found


def steps(texts):
    """{file: files that it leads to}: what it includes and, for a header, what implements it.

    A .cc file implements the header of its name; without one, each header of its folder that it
    includes. Verbs (src/cli) have one header for all of them, so there only names count.
    """
    lead = {}
    for name, text in texts.items():
        included = {"src/" + path for path in INCLUDE.findall(text)} & texts.keys()
        lead.setdefault(name, set()).update(included)
        if not name.endswith(".cc") or re.search(r"_(test|fuzz|tool)\.cc$", name):
            continue
        own, folder = name.removesuffix(".cc") + ".h", name.rpartition("/")[0]
        if own in texts:
            lead.setdefault(own, set()).add(name)
        elif folder != "src/cli":
            for header in included:
                if header.rpartition("/")[0] == folder:
                    lead.setdefault(header, set()).add(name)
    return lead


def reached(texts):
    """{file: the nearest fuzz entry that reaches it}"""
    lead, found = steps(texts), {}
    front = [(name, name) for name in sorted(texts) if ENTRY.search(name)]
    while front:
        following = []
        for name, entry in front:
            if name not in found:
                found[name] = entry
                following += [(other, entry) for other in sorted(lead.get(name, ()))]
        front = following
    return found


def entry_names(texts):
    return {name.rpartition("/")[2].removesuffix(".cc") for name in texts if ENTRY.search(name)}


def faults(texts, table, corpora):
    """[(file, line, words)]: what no entry reaches, what the table names in vain, entries without
    inputs. `corpora` are the names of the folders of tests/corpus that have inputs."""
    found, near, entries = parsers(texts), reached(texts), entry_names(texts)
    listed, wrong = set(), []
    for number, line in enumerate(table.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        source, _, entry = line.partition(" ")
        if source not in found or source in listed:
            wrong.append((TABLE, number,
                          f"{source} reads no bytes from outside, or stands twice"))
        elif source in near:
            wrong.append((TABLE, number, f"{near[source]} reaches {source}: take out the line"))
        if entry not in KINDS and entry not in entries:
            wrong.append((TABLE, number, f"there is no fuzz entry {entry}"))
        listed.add(source)
    for source in sorted(found - listed - near.keys()):
        wrong.append((source, 1, "reads bytes from outside and no fuzz entry includes it: write "
                                 f"one, or name the entry of its decoder in {TABLE}"))
    for entry in sorted(entries):
        if entry.endswith("_fuzz") and entry not in corpora:
            wrong.append((TABLE, 1, f"tests/corpus/{entry} has no inputs"))
    return wrong
