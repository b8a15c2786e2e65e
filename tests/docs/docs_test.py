#!/usr/bin/env python3
"""Runs the commands of README.md and of all docs/: docs_test.py --nibble PROGRAM --model PEBBLE.

Every block fenced as `sh` runs in bash, in the order of its page, in a folder that looks like the
repository's root; `nibble` is the program under test, and the hub is one on this machine that has
Pebble under the name of the 35B. A line that starts a server stays in the background until the page
ends or the next one starts at its port, and the page goes on when it is ready; ports 8000 and 8001
become free ones. A command may end in `# exit N` or `# exit N or M`. A block that cannot run
here has <!-- not run: REASON --> on the line before it. What it is not: a check of printed samples.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "serve")]
import cards_table  # noqa: E402
from blocks import Block, blocks_of, commands_of  # noqa: E402
from page import ROOT, Page  # noqa: E402
from running_server import run_program_checks  # noqa: E402

REASONS = {  # why a block may be left out; anything else is a mistake
    "card": "needs an NVIDIA card",
    "cluster": "needs a Kubernetes cluster or another machine",
    "build": "builds the program, or installs it, which ./test does by itself",
    "client": "needs another program",
    "system": "changes the system it runs on",
    "long": "takes minutes",
    "elsewhere": "is run by a test that the page names, or that ./test --full has for it",
}
# How many blocks are left out today. The number may fall; one that grows needs a good reason.
LEFT_OUT_MAX = 22


def pages():
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


class Checks:
    """Each page is a check; so are the reader of pages and the count of what is left out."""

    def __init__(self, nibble, model, work):
        self.nibble, self.model = nibble, model

    def test_the_reader_of_pages(self):
        text = ("```sh\necho a \\\n  b\ncat <<E\n8000\nE\n```\n<!-- not run: card -->\n```sh\nx\n"
                "```\nwords\n```sh\ny\n```\n```text\nno\n```\n\n    nibble serve DIR\n    plain\n")
        found, bare = blocks_of(text)
        assert [block.reason for block in found] == [None, "card", None], found
        assert [block.text for block in found][1:] == ["x", "y"]
        assert commands_of(found[0].text) == ["echo a \\\n  b", "cat <<E\n8000\nE"]
        assert bare == [20], bare

    def test_a_command_that_fails_is_seen(self):
        page = Page(self.nibble, self.model, "a page")
        try:
            page.run(Block(1, "false # exit 1\ntrue", None))
            for text in ("false", "true # exit 1", "false | true", "nibble no-such-verb",
                         "nibble serve no-such-folder"):
                try:
                    page.run(Block(1, text, None))
                except AssertionError:
                    continue
                raise RuntimeError(f"not seen to fail: {text}")
        finally:
            page.close()

    def test_the_chart_is_drawn_from_its_data(self):
        """Its bound is what `plan` computes, and the picture what the data give."""
        with tempfile.NamedTemporaryFile("w", suffix=".json") as plan:
            subprocess.run([self.nibble, "plan", "qwen3.6-35b-a3b", "--gpu", "h200", "--json",
                            "--recipe", "mixed-nvfp4-head", "--no-speculation"],
                           stdout=plan, check=True)
            subprocess.run([ROOT / "bench/throughput_chart.py", "--check", "--bound", plan.name],
                           check=True)

    def test_the_cards_are_as_plan_computes(self):
        cards_table.check(self.nibble)

    def test_the_sample_of_quickstart(self):
        """README shows what the second half of ./quickstart prints; only numbers may differ."""
        def masked(text):
            return [re.sub(r"\d+(\.\d+)?", "N", line).rstrip() for line in text.splitlines()]
        sample = masked(re.search(r"```text\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[1])
        assert len(sample) > 8, sample
        page = Page(self.nibble, self.model, "quickstart")
        try:
            done = subprocess.run(["bash", page.root / "quickstart", self.nibble], text=True,
                                  capture_output=True, timeout=600, env=page.environment)
        finally:
            page.close()
        assert done.returncode == 0, done
        shown = masked(done.stdout)
        assert any(shown[at:at + len(sample)] == sample for at in range(len(shown))), (
            "README.md shows\n" + "\n".join(sample) + "\nand quickstart prints\n" +
            "\n".join(shown))

    def test_the_blocks_that_are_left_out(self):
        left_out = []
        for path in pages():
            found, bare = blocks_of(path.read_text())
            name = path.relative_to(ROOT)
            assert not bare, f"{name}:{bare[0]}: a command in an indented block: fence it as sh"
            for block in found:
                if block.reason is not None:
                    assert block.reason in REASONS, f"{name}:{block.line}: {block.reason}?"
                    left_out.append(f"{name}:{block.line} ({block.reason})")
        print(f"{len(left_out)} blocks are not run: {', '.join(left_out)}")
        assert len(left_out) <= LEFT_OUT_MAX, f"{len(left_out)}, at most {LEFT_OUT_MAX}"


def check_page(path):
    def check(self):
        found, _ = blocks_of(path.read_text())
        page = Page(self.nibble, self.model, str(path.relative_to(ROOT)))
        try:
            for block in found:
                if block.reason is None:
                    page.run(block)
        finally:
            page.close()
    return check


for page_path in pages():
    if "```sh" in page_path.read_text():
        page_name = re.sub(r"\W", "_", str(page_path.relative_to(ROOT).with_suffix("")).lower())
        setattr(Checks, f"test_{page_name}", check_page(page_path))

if __name__ == "__main__":
    sys.exit(run_program_checks(Checks, __doc__))
