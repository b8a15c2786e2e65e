"""The test programs of a module and its product files that are drawn from, and their hash."""

import dataclasses
import functools
import hashlib
import pathlib
import re
import sys

import changes

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOT_DRAWN = re.compile(r"(_test|_fuzz|_tool|_data|_main|simulation)\.cc$|/absent\.cc$|/testing/")
INCLUDERS_MAX = 4
JUDGING = 2  # to be raised when results of before would be others now


@dataclasses.dataclass(frozen=True)
class Program:
    """A target that is run, or given to a script of this checkout. Without arguments: gtest."""
    target: str
    arguments: tuple = ()
    script: str = ""
    helper: bool = False  # is not run itself: a test program beside it starts it
    module: str = ""      # whose tests these are, if of another module than the judged one

    def command(self, path):
        """With the built target's path; the oracles' caches are read, never written."""
        words = [word.format(path=path, cache=ROOT / "build/cache", model=ROOT / "pebble/model")
                 for word in self.arguments]
        if not self.script:
            return [str(path), *words]
        return [sys.executable, str(ROOT / self.script), *words]


def simulation(first, seeds):
    return Program("nibble_engine_simulation",
                   ("--first", str(first), "--seeds", str(seeds), "--steps", "300",
                    "--threads", "1"))


def target_of(module):
    return f"nibble_{module.replace('/', '_')}_test"


def tests_of(*modules):
    return [Program(target_of(module), module=module) for module in modules]


def steps(*names):
    """Python steps of ./test, which run the whole program over the small model."""
    return [Program("nibble", ("--nibble", "{path}", "--model", "{model}"), f"tests/{name}.py",
                    module="cli") for name in names]


# Programs beside a module's own unit tests: helpers of those, simulations, oracles, and the tests
# of modules that use this one, which judge last. The counts of the first lives of the simulation
# see most of what all of them see.
MORE_PROGRAMS = {
    "backend/cpu": [*tests_of("quantize", "cli"),
                    *steps("cli/bits_test", "cli/cpu_weights_test", "serve/images_test")],
    "checkpoint": [*tests_of("model", "quantize", "cli"),
                   *steps("cli/quantized_figures_test", "cli/bad_input_test", "cli/crash_test",
                          "cli/verify_test")],
    "engine": [Program("nibble_engine_simulation", ("{path}",), "tests/engine_counts_test.py"),
               simulation(301, 700),
               *tests_of("server", "cli"),
               *steps("serve/serve_test", "serve/drafts_test", "serve/metrics_format_test")],
    "grammar": [Program("nibble_structure_worker", helper=True),
                Program("nibble_grammar_tool", ("--tool", "{path}", "--table", "--outputs", "10"),
                        "tests/serve/schema_suite.py", module="server"),
                Program("nibble_grammar_tool",
                        ("--tool", "{path}", "--cache", "{cache}", "--outputs", "2"),
                        "tests/serve/schema_suite.py", module="server"),
                Program("nibble_grammar_tool", ("--tool", "{path}"),
                        "tests/serve/pydantic_types.py", module="server"),
                *tests_of("server"), *steps("serve/transcripts_test", "serve/answers_test")],
    "model": [*tests_of("backend/reference", "backend/cpu", "quantize", "cli"),
              *steps("cli/cpu_weights_test", "cli/bad_input_test")],
    "quantize": [*tests_of("cli"),
                 *steps("cli/quantized_figures_test", "cli/recipe_quality_test", "cli/verify_test",
                        "cli/allocation_test", "cli/crash_test")],
    "server": [*tests_of("cli"),
               *steps("serve/transcripts_test", "serve/serve_test", "serve/other_apis_test",
                      "serve/answers_test", "serve/images_test", "serve/metrics_format_test",
                      "serve/published_lines_test", "cli/batch_test")],
    "text": [Program("nibble_template_tool", ("{path}", "5"), "tools/oracle/template_test.py"),
             Program("nibble_tokenizer_tool", ("{path}", "{cache}"),
                     "tools/oracle/tokenizer_test.py"),
             *tests_of("server", "cli"),
             *steps("serve/transcripts_test", "serve/other_apis_test")],
}


def programs_of(module):
    return [Program(target_of(module)), *MORE_PROGRAMS.get(module, [])]


@functools.cache
def includers_in(tree):
    texts = {str(path.relative_to(tree / "src")): path.read_text()
             for path in (tree / "src").rglob("*") if path.suffix in (".cc", ".h", ".inl")}
    return changes.includers(texts)


def product_files(tree, module):
    """{file: the .cc files to compile when it changes}: sources, and .inl of a few of them. The
    tree stays as it is while this runs."""
    included_by = includers_in(tree)
    files = {}
    for name in sorted(included_by):
        if not name.startswith(module + "/") or NOT_DRAWN.search(name):
            continue
        if name.endswith(".cc"):
            files["src/" + name] = ["src/" + name]
        elif ".inl" in name and 0 < len(included_by[name]) <= INCLUDERS_MAX and not any(
                NOT_DRAWN.search(source) for source in included_by[name]):
            files["src/" + name] = ["src/" + source for source in sorted(included_by[name])]
    return files


@functools.cache
def hashed_files(tree):
    """(name, content) of each file of the tree that may decide a result."""
    paths = ((str(path.relative_to(tree)), path) for path in sorted(tree.rglob("*")))
    return [(name, path.read_bytes()) for name, path in paths
            if name.startswith(("src/", "tests/golden/", "cmake/")) and path.is_file()]


def sources_hash(tree, module, programs):
    """A hash of everything that may decide a result: all C++ below, the module and its tests'
    data."""
    digest = hashlib.sha256(repr((JUDGING, programs)).encode())
    judges = [module, *(program.module for program in programs if program.module)]
    for folder in sorted({(ROOT / program.script).parent for program in programs
                          if program.script}):
        for file in sorted([*folder.glob("*.py"), *folder.glob("*.json")]):
            digest.update(file.read_bytes())
    for name, content in hashed_files(tree):
        beside = name.startswith("src/") and name.endswith("_test.cc") and \
            not name.startswith(tuple(f"src/{judge}/" for judge in judges))
        if not beside:
            digest.update(name.encode() + content)
    return digest.hexdigest()
