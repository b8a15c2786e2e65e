#!/usr/bin/env python3
"""nibble chat: chat_test.py --nibble PROGRAM --model PEBBLE_FOLDER.

Through a pipe, and through a terminal (a pty) as a person uses it. The last line counts.
"""
import base64
import json
import os
import pathlib
import pty
import re
import select
import signal
import stat
import subprocess
import sys
import termios
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "serve"))
from running_server import run_program_checks  # noqa: E402

TASKS = pathlib.Path(__file__).resolve().parents[2] / "pebble" / "tasks"


class Screen:
    """The program in a terminal; what it writes is gathered in `text`."""

    def __init__(self, command, environment):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execve(command[0], [str(word) for word in command], environment)
        self.text = ""

    def type(self, text):
        os.write(self.terminal, text.encode())

    def prompt(self, pattern="> "):
        """Returns once the program reads keys: until then the terminal acts on some itself."""
        self.wait(pattern)
        end = time.monotonic() + 600
        while termios.tcgetattr(self.terminal)[3] & termios.ICANON:
            assert time.monotonic() < end, "the terminal still gathers lines"
            time.sleep(0.01)

    def wait(self, pattern, seconds=600):
        """Returns the output up to and with `pattern`, and takes it out of `text`."""
        end = time.monotonic() + seconds
        while True:
            found = re.search(pattern, self.text)
            if found:
                seen, self.text = self.text[:found.end()], self.text[found.end():]
                return seen
            ready, _, _ = select.select([self.terminal], [], [], max(0, end - time.monotonic()))
            try:
                piece = os.read(self.terminal, 65536) if ready else b""
            except OSError:  # the other end is closed
                piece = b""
            if not piece:
                raise AssertionError(f"no {pattern!r} in {self.text!r}")
            self.text += piece.decode(errors="replace")

    def leave(self):
        """The exit code, after the program's end."""
        try:
            while select.select([self.terminal], [], [], 600)[0] and os.read(self.terminal, 65536):
                pass
            os.kill(self.pid, signal.SIGKILL)  # silent for minutes
        except OSError:
            pass
        os.close(self.terminal)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Checks:
    def __init__(self, nibble, model, work):
        self.command = [nibble, "chat", model, "--temperature", "0"]
        self.work = work
        self.environment = {**os.environ, "XDG_STATE_HOME": str(work), "TERM": "xterm"}

    def piped(self, *lines, words=()):
        """Standard output and standard error."""
        done = subprocess.run([*self.command, *words], input="\n".join(lines) + "\n", text=True,
                              capture_output=True, timeout=600, env=self.environment)
        assert done.returncode == 0, done
        return done.stdout, done.stderr

    def screen(self, *words):
        screen = Screen([*self.command, *words], self.environment)
        screen.wait("/bye leaves")
        screen.prompt()
        return screen

    # Through a pipe.

    def test_answers_are_alone_on_standard_output(self):
        out, err = self.piped("What is 4 + 5?", "What is 12 + 34?", "/bye", "What is 1 + 1?")
        assert out == "9\n46\n", out
        assert "4+5" in err and "\x1b" not in err, err

    def test_blocks_and_settings(self):
        out, err = self.piped('"""What is', '4 + 5?"""', "/set think off", "/set verbose",
                              "/set parameter max_tokens 1", "What is 40 + 50?", "/show")
        assert out.startswith("9\n") and len(out) < 8, out
        for piece in ("thinking off", "statistics on", "max_tokens = 1", "tokens/s), length]",
                      "[cut off", "parameters  temperature 0.0, max_tokens 1", "said        2"):
            assert piece in err, (piece, err)

    def test_retry_undo_clear(self):
        out, err = self.piped("What is 4 + 5?", "/retry", "/show", "/undo", "/show", "/undo",
                              "What is 4 + 5?", "/clear", "/retry", "/edit")
        assert out == "9\n" * 3, out
        for piece in ("said        1", "forgotten", "said        0", "nothing to forget",
                      "nothing was asked yet"):
            assert piece in err, (piece, err)

    def test_save_and_load(self):
        kept = self.work / "kept.json"
        self.piped("/set system Be brief.", "/set parameter top_k 7", "/set parameter stop END",
                   "/set think off", "/set profile instruct", "What is 4 + 5?", f"/save {kept}")
        saved = json.loads(kept.read_text())
        assert saved["parameters"] == {"temperature": 0.0, "top_k": 7, "stop": "END"}, saved
        assert saved["messages"][1] == {"role": "assistant", "content": "9"}, saved
        _, err = self.piped(f"/load {kept}", "/show")
        for piece in ("loaded 1", "Be brief.", "top_k 7", "profile     instruct", "off, shown"):
            assert piece in err, (piece, err)

    # Images go with the next question that is answered.

    def picture(self):
        """A file with a picture of one coloured shape, the question for it, and the answer."""
        with open(TASKS / "image.jsonl", encoding="utf-8") as lines:
            item = next(item for item in map(json.loads, lines)
                        if item["task"] == "image_colour" and not item["thinking"])
        image, text = item["messages"][0]["content"]
        path = self.work / "picture.png"
        path.write_bytes(base64.b64decode(image["image_url"]["url"].split(",")[1]))
        return path, text["text"], item["answer"]

    def test_a_picture(self):
        path, question, answer = self.picture()
        out, _ = self.piped("/set think off", f"/image {path}", question)
        assert out == f"{answer}\n", out
        out, err = self.piped("/set think off", f"/image {path}", "/image", question, "/image")
        assert "the next question has no images" in err and "/image FILE" in err, err
        _, err = self.piped(f"/image {path}", words=("--no-vision",))
        assert "given text alone" in err, err

    def test_a_refused_question_keeps_its_pictures(self):
        path, question, answer = self.picture()
        out, err = self.piped("/set think off", f"/image {path}", "too long " * 500, question,
                              words=("--max-model-len", "256", "--max-image-tokens", "64"))
        assert out == f"{answer}\n", (out, err)
        assert "its images go with the next question" in err, err

    def test_a_refused_retry_keeps_the_answer_and_says_nothing_of_pictures(self):
        path, question, answer = self.picture()
        out, err = self.piped("/set think off", f"/image {path}", question,
                              "/set system " + "too long " * 44, "/retry", "/show",
                              words=("--max-model-len", "256", "--max-image-tokens", "64",
                                     "--max-tokens", "16"))
        assert out == f"{answer}\n", (out, err)
        assert "said        1" in err and "go with the next question" not in err, err

    def test_old_questions_leave_the_next_pictures_alone(self):
        path, question, answer = self.picture()
        for commands, answers in ((("/retry", "/undo"), "9\n9\n"), (("/edit",), "9\n")):
            out, err = self.piped("/set think off", "What is 4 + 5?", f"/image {path}", *commands,
                                  question)
            assert out == f"{answers}{answer}\n", (commands, out, err)

    def test_bad_files_are_told_and_change_nothing(self):
        bad = self.work / "bad.json"
        good = {"messages": [{"role": "user", "content": "a"},
                             {"role": "assistant", "content": "b"}]}
        for change, piece in (({"messages": 7}, "messages: expected a list"),
                              ({"messages": good["messages"][:1]}, "in turn"),
                              ({"messages": good["messages"][::-1]}, "a user's, then"),
                              ({"parameters": {"temprature": 1}}, "temprature"),
                              ({"parameters": {"top_k": "x"}}, "top_k"),
                              ({"think": "yes"}, "think"),
                              ({"profile": "none-such"}, "none-such")):
            bad.write_text(json.dumps({**good, **change}))
            _, err = self.piped("/set system S", f"/load {bad}", "/show")
            assert piece in err and "said        0" in err and "system      S" in err, (piece, err)
        _, err = self.piped("/load /no/such/file", "/load", "/save /no/such/file")
        assert err.count("/no/such/file") == 2 and "/load FILE" in err, err

    def test_wrong_words_are_told(self):
        for line, piece in (("/sev", "did you mean /set?"), ("/zzzzzzz", "/help lists them"),
                            ("/set parameter temprature 1", "did you mean temperature?"),
                            ("/set temprature 1", "did you mean parameter temperature?"),
                            ("/set parameter temperature hot", "0 to 100"),
                            ("/set parameter temperature default", "as before"),
                            ("/set think maybe", "show or hide"),
                            ("/set profile quick", "thinking-coding"),
                            ("/help", "/retry")):
            out, err = self.piped(line)
            assert piece in err and not out, (line, err)
        done = subprocess.run([*self.command, "--profile", "quick"], capture_output=True, text=True)
        assert done.returncode == 2 and "thinking-coding" in done.stderr, done

    # In a terminal.

    def test_a_question_in_a_terminal(self):
        screen = self.screen("--verbose")
        screen.type("What is 4 + 5?\r")
        seen = screen.wait(r"tokens/s\), stop\]")
        assert re.search(r"\x1b\[2m.*4\+5.*\x1b\[0m\s+9\s", seen, re.S), seen  # dimmed, then not
        screen.prompt()
        screen.type("/set think hide\r")
        screen.wait("folded")
        screen.prompt()
        screen.type("What is 4 + 5?\r")
        seen = screen.wait("stop]")
        assert "[thought for" in seen and "4+5" not in seen, seen
        screen.prompt()
        screen.type("\x04")  # Ctrl-D
        assert screen.leave() == 0

    def test_control_c_stops_the_answer_and_not_the_program(self):
        screen = self.screen()
        screen.type("/set parameter min_tokens 8000\r")
        screen.wait("= 8000")
        screen.prompt()
        screen.type("What is 4 + 5?\r")
        screen.wait(r"4\+5")
        screen.type("\x03")
        screen.wait(r"\[stopped\]")
        screen.type("/show\r")
        screen.wait("said        1")
        screen.prompt()
        screen.type("\x03")
        screen.wait("Ctrl-C again")
        screen.prompt()
        screen.type("/undo\r")  # one Ctrl-C alone leaves nothing behind
        screen.wait("forgotten")
        screen.prompt()
        screen.type("\x03")
        screen.wait("Ctrl-C again")
        screen.prompt()
        screen.type("\x03")
        assert screen.leave() == 0

    def test_history_is_kept_and_private(self):
        history = self.work / "nibble" / "history"
        history.unlink(missing_ok=True)
        screen = self.screen()
        screen.type("/set system remember me\r")
        screen.wait("message set")
        screen.type("/bye\r")
        assert screen.leave() == 0
        assert stat.S_IMODE(history.stat().st_mode) == 0o600
        history.chmod(0o644)
        screen = self.screen()
        screen.type("\x1b[A\x1b[A\r")  # twice up: the line before /bye
        screen.wait("message set")
        screen.type("/bye\r")
        assert screen.leave() == 0
        assert stat.S_IMODE(history.stat().st_mode) == 0o600

    def test_edit_puts_the_question_back(self):
        screen = self.screen()
        screen.type("What is 4 + 5?\r")
        screen.wait(r"\x1b\[0m\s+9\s")
        screen.prompt()
        screen.type("/edit\r")
        screen.wait("forgotten")
        screen.prompt(r"What is 4 \+ 5\?")
        screen.type("\x7f\x7f6?\r")  # backspace over 5?
        screen.prompt(r"\x1b\[0m\s+10\s")
        screen.type("\x04")
        assert screen.leave() == 0


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a parent may have it ignored
    sys.exit(run_program_checks(Checks, __doc__))
