#!/usr/bin/env python3
"""Types into nibble chat: chat_typing_test.py --nibble PROGRAM --model PEBBLE_FOLDER.

In tmux, whose screen says where characters and the cursor stand: in a UTF-8 locale, in C, and 40
columns wide. The last line counts.
"""
import atexit
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "serve"))
from running_server import run_program_checks  # noqa: E402

WORDS = "Größe Ελλάδα 日本語 e\u0301x 🙂"


class Tmux:
    """The program in a terminal of tmux."""

    def __init__(self, command, folder, locale="C.UTF-8", columns=80):
        self.folder = tempfile.TemporaryDirectory()  # it outlives that of a check that failed
        self.socket = self.folder.name + "/tmux"
        atexit.register(self.end)
        line = shlex.join(["env", f"LC_ALL={locale}", *map(str, command)])
        subprocess.run(["tmux", "-u", "-S", self.socket, "-f", "/dev/null", "new-session", "-d",
                        "-x", str(columns), "-y", "24", line],
                       check=True, env={**os.environ, "LC_ALL": "C.UTF-8", "TERM": "xterm",
                                        "XDG_STATE_HOME": str(folder)})
        self.wait("/bye leaves")

    def end(self):
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], capture_output=True)
        self.folder.cleanup()

    def ask(self, *words, text=None):
        return subprocess.run(["tmux", "-u", "-S", self.socket, *words], check=True, text=True,
                              input=text, capture_output=True, encoding="utf-8").stdout

    def type(self, text):
        self.ask("send-keys", "-l", text)

    def press(self, *keys):
        self.ask("send-keys", *keys)

    def paste(self, text):
        self.ask("load-buffer", "-", text=text)
        self.ask("paste-buffer", "-p", "-r")

    def rows(self):
        return self.ask("capture-pane", "-p").rstrip("\n").split("\n")

    def cursor(self):
        x, y = self.ask("display", "-p", "#{cursor_x} #{cursor_y}").split()
        return int(x), int(y)

    def wait(self, what, seconds=600):
        """Until the screen shows the text, or what is called gives true."""
        end = time.monotonic() + seconds
        met = what if callable(what) else lambda: any(what in row for row in self.rows())
        while not met():
            rows = "\n".join(self.rows())
            assert time.monotonic() < end, f"no {what!r} at {self.cursor()} on\n{rows}"
            time.sleep(0.1)

    def leave(self):
        self.press("Enter")
        self.type("/bye")
        self.press("Enter")
        deadline = time.monotonic() + 600
        while subprocess.run(["tmux", "-S", self.socket, "has-session"],
                             capture_output=True).returncode == 0:
            assert time.monotonic() < deadline, self.rows()
            time.sleep(0.1)


class Checks:
    def __init__(self, nibble, model, work):
        self.command = [nibble, "chat", model]
        self.work = work

    def check_every_character(self, locale):
        screen = Tmux(self.command, self.work, locale)
        screen.type("/set system " + WORDS)
        screen.wait("> /set system " + WORDS)
        columns = len("> /set system Größe Ελλάδα ") + 6 + len(" ex ") + 2
        screen.wait(lambda: screen.cursor()[0] == columns)
        # Between the combined character and what is before it.
        screen.press(*["Left"] * 4)
        screen.type("Y")
        screen.wait("日本語 Ye\u0301x 🙂")
        screen.wait(lambda: screen.cursor()[0] == columns - 4)
        screen.press("BSpace", "BSpace", "BSpace")
        screen.wait("日本e\u0301x 🙂")
        screen.press("Enter")
        screen.wait("system message set")
        screen.type("/show")
        screen.press("Enter")
        screen.wait("system      Größe Ελλάδα 日本e\u0301x 🙂")
        screen.press("Up", "Up")  # out of the history
        screen.wait(lambda: screen.rows()[-1].startswith("> /set system Größe Ελλάδα 日本e"))
        screen.press("C-u")
        screen.leave()

    def test_every_character_in_a_utf8_locale(self):
        self.check_every_character("C.UTF-8")

    def test_every_character_in_the_locale_c(self):
        self.check_every_character("C")

    def test_forty_columns(self):
        screen = Tmux(self.command, self.work, columns=40)
        screen.type("/set system x" + "日" * 20 + "e\u0301" * 20)
        # 15 columns, then 12 of 2: a half of a character is left free at the edge.
        first = "> /set system x" + "日" * 12
        second = "日" * 8 + "e\u0301" * 20
        screen.wait(lambda: screen.rows()[-2:] == [first, second])
        screen.wait(lambda: screen.cursor()[0] == 36)
        screen.press("Home")
        screen.press("C-Right", "C-Right")
        screen.type("!")
        screen.wait("> /set system! x")
        screen.press("End")
        screen.type("z" * 100)
        screen.wait(lambda: screen.rows()[-1].endswith("zzz"))
        screen.press("C-w", "C-w", "C-u")
        screen.wait(lambda: screen.rows()[-1].strip() == ">")
        screen.leave()

    def test_a_paste_is_one_message(self):
        screen = Tmux(self.command, self.work)
        screen.paste("/set system eins\nzwei ä\n\ndrei\n")
        screen.wait("drei")
        assert not any("message set" in row for row in screen.rows()), screen.rows()
        screen.press("Enter")
        screen.wait("system message set")
        screen.type("/show")
        screen.press("Enter")
        screen.wait("said        0 questions")
        rows = screen.rows()
        at = rows.index("system      eins")
        assert rows[at + 1:at + 4] == ["zwei ä", "", "drei"], rows
        screen.leave()

    def test_words_by_control_and_arrows(self):
        screen = Tmux(self.command, self.work)
        screen.type("/set system alpha béta")
        screen.wait("béta")
        screen.press("C-Left")
        screen.type("X")
        screen.wait("alpha Xbéta")
        screen.press("C-Left", "C-Left", "C-Right")
        screen.type("Y")
        screen.wait("alphaY Xbéta")
        screen.press("M-d")
        screen.wait(lambda: any(row.endswith("alphaY") for row in screen.rows()))
        screen.press("C-y")
        screen.wait("alphaY Xbéta")
        screen.leave()


if __name__ == "__main__":
    sys.exit(run_program_checks(Checks, __doc__))
