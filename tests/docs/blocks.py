"""The command blocks of a page in Markdown: found, and cut into whole commands. It runs nothing."""

import re
import subprocess

COMMANDS = (r"(nibble|curl|build/\S+|bench/\S+|tools/\S+|python3|cmake|\./\w+|hf|docker|helm|"
            r"kubectl|sudo)")


class Block:
    def __init__(self, line, text, reason):
        self.line, self.text, self.reason = line, text, reason


def blocks_of(text):
    """The `sh` blocks of a page, and the lines where a command stands in an indented block."""
    found, bare, fence, body, reason = [], [], None, [], None
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            if fence is None:
                fence, start, body = line[3:].strip(), number, []
            else:
                if fence == "sh":
                    found.append(Block(start, "\n".join(body), reason))
                fence = reason = None
        elif fence is not None:
            body.append(line)
        elif marker := re.fullmatch(r"<!-- not run: (.*?) -->", line.strip()):
            reason = marker[1]
        elif line.strip():
            reason = None
            if re.match(r"    " + COMMANDS + r"\s", line):
                bare.append(number)
    return found, bare


def commands_of(block):
    """Whole commands of a block, over several lines where a quote or a here-document goes on."""
    commands, lines = [], block.splitlines()
    at = 0
    while at < len(lines):
        end = at + 1
        while end < len(lines) and subprocess.run(
                ["bash", "-n"], input="\n".join(lines[at:end]) + "\n", text=True,
                capture_output=True).stderr:
            end += 1
        while end < len(lines) and lines[end - 1].endswith("\\"):
            end += 1
        command = "\n".join(lines[at:end])
        if command.strip() and not command.lstrip().startswith("#"):
            commands.append(command)
        at = end
    return commands
