#!/usr/bin/env python3
"""The rules of tools/house_rules, each shown a mistake that it must see and code that is right."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))
from house_rules import (comments, cpp_source, documents, outside_bytes,  # noqa: E402
                         patience, rooms, signatures, sizes)

HEADER = """\
// A header; not a real one.
#define LONG(a) \\
  if (a) {
namespace nibble {
enum class Kind { one, two };
constexpr int kSizes[] = {1, 2};
struct Options { int a = 3; bool b = false; std::vector<int> c{1, 2}; };
template <class T>
Result<void> read(std::string_view name,  // ){ in a comment
                  const std::map<int, T>& sizes = {},
                  bool sorted = false);
class File : public Base {
 public:
  explicit File(int descriptor, int more) : descriptor_{descriptor}, more_(more) { start(); }
  ~File();
  bool operator==(const File&) const = default;
  void close() override;
  Json(bool value);
  void sink(std::function<void(bool)> out);
 private:
  int position(bool end) const { return end ? 1 : 2; }
  int descriptor_;
};
inline int last(
    int a, int b) {
  const char* text = "} \\" {";
  for (int i = 0; i < 3; ++i) { a += i; }
  return a + '}';
}
}  // namespace nibble
"""


def functions_of(text):
    return cpp_source.functions(cpp_source.bare(text))


class CppSource(unittest.TestCase):
    def test_finds_functions_with_their_lines_and_parameters(self):
        found = {f.name: f for f in functions_of(HEADER)}
        self.assertEqual(list(found), ["read", "File", "~File", "operator==", "close", "Json",
                                       "sink", "position", "last"])
        self.assertEqual(found["read"].parameters,
                         ["std::string_view name", "const std::map<int, T>& sizes", "bool sorted"])
        read = found["read"]
        self.assertEqual((read.line, read.end, read.body), (8, 11, False))
        last = found["last"]
        self.assertEqual((last.line, last.opens, last.end, last.body), (24, 25, 29, True))
        self.assertEqual((found["sink"].access, found["position"].access), ("public", "private"))

    def test_what_is_no_function(self):
        self.assertEqual(functions_of("int a = f(1);\nusing F = void(int);\nstruct S { int a; };\n"
                                      "enum E { x, y };\nstatic_assert(sizeof(int) == 4);\n"), [])

    def test_raw_strings_and_digit_separators_hide_nothing(self):
        found = functions_of("int f() { return 1'000'000; }\n"
                             'auto t = R"(void g() {)";\nint h();\n')
        self.assertEqual([f.name for f in found], ["f", "h"])


class Signatures(unittest.TestCase):
    def test_a_bool_parameter_on_a_later_line(self):
        wrong = signatures.bool_parameters(functions_of(HEADER))
        self.assertEqual([line for line, _ in wrong], [8])

    def test_a_declaration_that_nothing_uses(self):
        declarations = signatures.Declarations()
        source = "int called() { return 1; }\nint idle() { return called(); }\n"
        for name, text in [("src/a.h", "int called();\nint idle();\n"), ("src/a.cc", source)]:
            declarations.add(name, text, functions_of(text))
        self.assertEqual(declarations.faults(), [("src/a.h", 2, "nothing uses idle: delete it")])


class Sizes(unittest.TestCase):
    def body(self, lines):
        text = "int f(int a) {\n" + "  ++a;\n" * (lines - 2) + "}\n"
        return sizes.entries("src/a.cc", text, functions_of(text))

    def test_of_files_functions_and_parameters(self):
        self.assertEqual(self.body(30), {})
        self.assertEqual(self.body(31), {("function", "src/a.cc", "f"): 31})
        self.assertEqual(self.body(201), {("function", "src/a.cc", "f"): 201,
                                          ("file", "src/a.cc", ""): 201})
        text = "void f(int a, int b, int c,\n       int d, int e, int g);\n"
        self.assertEqual(sizes.entries("src/a.h", text, functions_of(text)),
                         {("parameters", "src/a.h", "f"): 6})
        text = "def f():\n" + "    pass\n" * 30
        self.assertEqual(sizes.entries("a.py", text, None), {("function", "a.py", "f"): 31})

    def test_the_ratchet(self):
        key = ("function", "src/a.cc", "f")
        for found, listed, words in [
                ({key: 40}, {key: 40}, None),
                ({key: 45}, {key: 40}, None),
                ({key: 46}, {key: 40}, "grew from 40 to 46"),
                ({key: 35}, {}, None),
                ({key: 36}, {}, "more than the aim"),
                ({key: 35}, {key: 40}, None),
                ({key: 34}, {key: 40}, "shrank from 40"),
                ({}, {key: 40}, "shrank from 40"),
                ({key: 71}, {key: 40}, "at most 70"),
                ({key: 71}, {key: 71}, None)]:
            wrong = sizes.faults(found, listed)
            self.assertEqual(len(wrong), 1 if words else 0, (found, listed))
            if words:
                self.assertIn(words, wrong[0][1])

    def test_the_list_reads_as_it_was_written(self):
        found = {("file", "a.cc", ""): 300, ("function", "a.cc", "f"): 33}
        self.assertEqual(sizes.read_table(sizes.write_table(found)), found)


class OutsideBytes(unittest.TestCase):
    TEXTS = {"src/a/read.h": "Result<int> parse_it(std::string_view text);",
             "src/a/read.cc": '#include "a/read.h"\n',
             "src/a/rest.cc": '#include "a/read.h"\nint x = parse_json(text);',
             "src/a/alone.cc": "auto x = parse_json(text);",
             "src/a/read_fuzz.cc": '#include "a/read.h"\n'}

    def words(self, table, texts=None, corpora=("read_fuzz",)):
        return [words for _, _, words in outside_bytes.faults(texts or self.TEXTS, table, corpora)]

    def test_an_entry_reaches_what_it_includes_and_what_implements_that(self):
        near = outside_bytes.reached(self.TEXTS)
        self.assertEqual({near["src/a/read.cc"], near["src/a/rest.cc"]}, {"src/a/read_fuzz.cc"})
        self.assertNotIn("src/a/alone.cc", near)

    def test_faults(self):
        self.assertEqual(self.words("src/a/alone.cc flags\n"), [])
        self.assertIn("no fuzz entry includes it", self.words("")[0])
        self.assertIn("take out", self.words("src/a/alone.cc flags\nsrc/a/read.cc flags")[0])
        self.assertIn("there is no fuzz entry", self.words("src/a/alone.cc other_fuzz\n")[0])
        self.assertIn("reads no bytes", self.words("src/a/alone.cc flags\nsrc/b.cc flags\n")[0])
        self.assertIn("has no inputs", self.words("src/a/alone.cc flags\n", corpora=())[0])


class Rooms(unittest.TestCase):
    @staticmethod
    def wrong(name, included, is_test=False):
        return rooms.wrong_includes(name, f'// A file.\n#include "{included}"\n', is_test)

    def test_only_lower_rooms_are_included(self):
        self.assertEqual(self.wrong("engine/schedule/a.h", "engine/cache/b.h"), [])
        self.assertEqual(self.wrong("engine/cache/a.h", "engine/cache/b.h"), [])
        self.assertEqual(self.wrong("engine/cache/a.h", "engine/b.h"), [])
        self.assertEqual(self.wrong("engine/a.h", "engine/schedule/b.h"), [])
        self.assertEqual(self.wrong("server/http/a.h", "engine/schedule/b.h"), [])
        self.assertEqual(self.wrong("engine/cache/a.h", "engine/schedule/b.h"),
                         [(2, "the room cache of engine includes schedule, a higher one")])
        self.assertEqual(self.wrong("engine/cache/a_test.cc", "engine/schedule/b.h", True), [])

    def test_rooms_that_are_not_in_the_order(self):
        self.assertEqual(len(self.wrong("engine/a.h", "engine/attic/b.h")), 1)
        self.assertEqual(len(self.wrong("engine/a.h", "engine/testing/b.h")), 1)
        self.assertEqual(self.wrong("engine/a_test.cc", "engine/testing/b.h", True), [])

    def test_crowded_folders(self):
        names = [f"engine/cache/{i}.h" for i in range(rooms.FILES_MAX)]
        self.assertEqual(rooms.crowded(names), [])
        self.assertEqual(len(rooms.crowded(names + ["engine/cache/last.cc"])), 1)
        self.assertEqual(rooms.crowded([f"grammar/{i}.h" for i in range(100)]), [])


class Documents(unittest.TestCase):
    def dead(self, text):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "src").mkdir()
            (root / "src/a.h").write_text("int known();\n")
            path = root / "PAGE.md"
            return ([line for line, _ in documents.dead_names(root, path, text, {"a.h"})],
                    [words for _, words in documents.dead_symbols(root, text)])

    def test_paths(self):
        right = "[a](src/a.h) `src/a.h` `src/*.h` `a.h` `config.json` [x](https://x)\n    cat src/a.h\n"
        self.assertEqual(self.dead(right), ([], []))
        self.assertEqual(self.dead("[b](src/b.h)\n`src/b.h`\n`b.cuh`\n    tools/b.py x\n")[0],
                         [1, 2, 3, 4])

    def test_headings(self):
        text = ("## A state in `BF16`, 2 rows\n"
                "[a](#a-state-in-bf16-2-rows) [b](PAGE.md) [c](#gone)\n")
        self.assertEqual(self.dead(text)[0], [2, 2])  # no PAGE.md in that folder, no such heading
        self.assertEqual(self.dead(text.replace(" [b](PAGE.md) [c](#gone)", ""))[0], [])

    def test_answers(self):
        start = documents.ANSWERS + "\n\n- Where? [src/a.h](src/a.h): "
        self.assertEqual(self.dead(start + "`known()`.\n"), ([], []))
        self.assertEqual(self.dead(start + "`known()`,\n  `gone`.\n")[1], ["src/a.h has no gone"])
        self.assertIn("names a file and a symbol", self.dead(start + "there.\n")[1][0])

    def test_the_answers_of_this_repository_are_looked_at(self):
        found = documents.answers((ROOT / "CONTRIBUTING.md").read_text())
        self.assertGreaterEqual(len(found), 12)


class Comments(unittest.TestCase):
    def test_first_words(self):
        self.assertEqual(comments.faults(["// The state.", "int a;  // Often", "/// what follows",
                                          "# Whatever", "x = 1  # not of use"]), [])
        for word in ["Of", "What", "Whether", "Behind"]:
            for line in ["// @ a row.", "  /// @ it.", "int a;  // @ it is.", "# @ it.",
                         '"""@ it."""']:
                self.assertEqual(len(comments.faults(["", line.replace("@", word)])), 1, line)


class Patience(unittest.TestCase):
    def test_requests_and_timeouts(self):
        self.assertEqual(patience.faults(
            "httpx.get(url, timeout=600)\nhttpx.Client(**more)\nclient.get(url)\n"
            "run(words, timeout=limit)\nhttpx.Limits(max_connections=3)\n"), [])
        for line in ("httpx.get(url)", "httpx.Client(base_url=url)",
                     "httpx.post(url, timeout=60)", "run(words, timeout=2.5)",
                     "left.communicate(timeout=10)"):
            self.assertEqual([at for at, _ in patience.faults(f"\n{line}\n")], [2], line)


if __name__ == "__main__":
    unittest.main()
