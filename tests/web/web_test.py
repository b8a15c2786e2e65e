"""The web page in headless Chromium against a real server: what a person does, and what a hostile
answer may not do. Not the routes' own tests (web_assets_test.cc).

    tests/web/web_test.py --nibble build/release/src/cli/nibble --model pebble/model

The README's picture is taken here (readme_picture.py); --take-picture takes it anew.
"""
import argparse
import json
import pathlib
import sys
import tempfile
import time
import traceback

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "serve")]
import readme_picture  # noqa: E402
from running_server import RunningServer  # noqa: E402

HOSTILE = "\n\n".join([
    "<script>window.owned = 1</script>",
    "<img src=x onerror=\"window.owned = 2\">",
    "[run](javascript:window.owned=3)",
    "[data](data:text/html,<script>window.owned=4</script>)",
    "[j](JaVaScRiPt:window.owned=5) [v](vbscript:x) <javascript:window.owned=6>",
    "![pixel](https://example.invalid/leak.png) [good](https://example.invalid/page)",
    "```html\n</code></pre><script>window.owned = 7</script>\n```",
    "| a | b |\n|---|---|\n| <b onclick=alert(1)>x</b> | </td><script>window.owned=8</script> |",
    "$\\text{<img src=x onerror=window.owned=9>}$ and `<svg onload=window.owned=10>`",
])

ONE_PIXEL_PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cf"
    "c0000003010100c9fe92ef0000000049454e44ae426082")
HOSTILE_UNITS = [  # repeated to 100 KB
    "*", "[", "`", "_a", "*a ", "**a", "[a](", "![", "[](", "<", "> ", "- ", "a*_", "$a ", "$",
    "\\(", "~~", "~", "#", "|", "|-", "1. ", "`a``", "$$\n", "\\[x\n", "http://a.", "https://", "- a\n",
    "* a\n  ", "a\n", "\\", "&lt;", "| a | b |\n|-|-|\n", "- - ", "**_", "$\\frac{", "${", "_{",
]


def browser(folder, downloads):
    options = webdriver.ChromeOptions()
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                 "--window-size=1280,900", "--force-device-scale-factor=1",
                 f"--user-data-dir={folder}"):
        options.add_argument(word)
    options.binary_location = "/usr/bin/chromium"
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    return webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))


class Page:
    """The page as a person sees it."""

    def __init__(self, driver, url, shots):
        self.driver, self.url, self.shots = driver, url, shots

    def open(self):
        self.driver.get(self.url + "/")
        self.until(lambda: self.all("#model option"), "the models are listed")

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def until(self, condition, what, seconds=300):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                found = condition()
                if found:
                    return found
            except WebDriverException:
                pass  # drawn anew between two looks
            time.sleep(0.05)
        raise AssertionError(f"not within {seconds} s: {what}; the page: {self.text()[-600:]!r}")

    def text(self):
        return self.driver.execute_script("return document.body.innerText")

    def js(self, body, *arguments):
        """The value of an async function's body in the page."""
        script = ("const done = arguments[arguments.length - 1];"
                  f"(async (...args) => {{{body}}})(...[...arguments].slice(0, -1))"
                  ".then(done, (e) => done('failed: ' + e));")
        return self.driver.execute_async_script(script, *arguments)

    def shot(self, name):
        if self.shots:
            self.driver.save_screenshot(str(self.shots / f"{name}.png"))

    def new_chat(self):
        self.one("#new-chat").click()
        self.until(lambda: self.all(".welcome"), "an empty conversation")

    def running(self):
        return "running" in self.one("#send").get_attribute("class")

    def finished(self):
        self.until(lambda: not self.running(), "the answer is complete", 60)

    def ask(self, text):
        self.one("#question").send_keys(text + Keys.ENTER)
        self.until(lambda: text in self.all(".message.user .body")[-1].text, "the question")
        self.finished()
        return self.answer()

    def answer(self):
        return self.all(".message.assistant .body")[-1].text

    def settings(self, **fields):
        """Fills fields of the panel, closes it."""
        self.one("#tune").click()
        self.until(lambda: self.one("#set-system").is_displayed(), "the panel")
        self.driver.execute_script("document.querySelector('.more').open = true")
        for name, value in fields.items():
            if name == "thinking":
                self.one(f"[data-thinking={value}]").click()
                continue
            self.driver.execute_script(
                "const f = document.getElementById('set-' + arguments[0]); f.value = arguments[1];"
                "f.dispatchEvent(new Event('input'))", name, value)
        self.one("#panel-close button").click()


class Checks:
    def __init__(self, page, downloads, take_picture):
        self.page, self.downloads, self.take_picture = page, downloads, take_picture

    def test_a_question_is_answered_with_its_thinking_folded(self):
        page = self.page
        page.new_chat()
        assert page.ask("What is 123456 plus 654321?") == "777777"
        thinking = page.one(".thinking")
        assert thinking.get_attribute("open") is None
        assert "Thought for" in thinking.text and "c0" not in thinking.text
        page.one(".thinking summary").click()
        assert "c0" in page.one(".thinking").text
        assert "tokens/s" in page.one(".message.assistant .figures").text
        assert page.one("#gauge-text").text.endswith("/ 16K")
        page.shot("chat")

    def test_the_picture_of_the_readme(self):
        page = self.page
        page.new_chat()
        page.settings(temperature="0", thinking="on")
        page.ask("Shop A sells a wagon for 200 with 15% off. Shop B sells it for 100 with 50% off. "
                 "Where is it cheaper?")
        assert "Shop B" in page.answer(), page.answer()
        page.ask("Compute 193900 + 370212.")
        assert page.answer() == "564112", page.answer()
        if self.take_picture:
            readme_picture.take(page.driver)
        readme_picture.check()
        page.settings(temperature="", thinking="on")

    def test_text_comes_in_pieces_and_stop_ends_it(self):
        page = self.page
        page.new_chat()
        page.settings(extra='{"ignore_eos": true, "max_tokens": 6000}', thinking="off")
        page.one("#question").send_keys("Repeat: apple" + Keys.ENTER)
        first = page.until(lambda: len(page.answer()), "the first text")
        page.until(lambda: len(page.answer()) > first, "more text while it runs")
        assert page.running() and page.one("#send").get_attribute("aria-label") == "Stop"
        page.one("#send").click()
        page.finished()
        assert "stopped" in page.one(".message.assistant .figures").text
        kept = page.answer()
        time.sleep(0.5)
        assert page.answer() == kept
        load = page.js("return (await fetch('/load')).json()")
        assert load["server_load"] == 0, load

    def test_a_reload_in_the_middle_keeps_what_was_said(self):
        page = self.page
        page.one("#question").send_keys("Repeat: pear" + Keys.ENTER)
        page.until(lambda: len(page.all(".message.assistant")) == 2 and len(page.answer()) > 20, "")
        time.sleep(0.5)
        page.open()
        page.until(lambda: len(page.all(".message.assistant")) == 2, "both answers")
        assert len(page.answer()) > 20 and not page.running()
        assert "stopped" in page.all(".message.assistant .figures")[-1].get_attribute("textContent")

    def test_edit_retry_and_branches(self):
        page = self.page
        page.new_chat()
        page.settings(extra="", thinking="off", temperature="0")
        assert page.ask("What is 12 plus 7?") == "19"
        page.one(".message.user [aria-label=Edit]").click()
        area = page.one(".editor textarea")
        area.clear()
        area.send_keys("What is 30 plus 4?" + Keys.ENTER)  # sends, as in the box below
        page.until(lambda: page.answer() == "34", "the answer of the new wording")
        page.finished()
        assert page.one(".message.user .place").text == "2 / 2"
        page.one(".message.user [aria-label='Previous version']").click()
        page.until(lambda: page.answer() == "19", "the first branch")
        page.one("[aria-label='Answer again']").click()
        page.until(lambda: page.all(".message.assistant .place"), "a second answer")
        page.finished()
        assert page.one(".message.assistant .place").text == "2 / 2"
        page.one(".message.user [aria-label='Next version']").click()
        page.until(lambda: page.answer() == "34", "the second branch again")
        page.shot("branches")
        self.answer_of_branch = page.answer()
        page.driver.execute_script("window.dispatchEvent(new Event('pagehide'))")
        time.sleep(0.5)
        page.open()
        page.until(lambda: page.all(".message"), "the conversation after a reload")
        assert page.answer() == "34" and page.one(".message.user .place").text == "2 / 2"

    def test_tool_calls_are_shown_and_take_a_result(self):
        page = self.page
        page.new_chat()
        tools = [{"type": "function", "function": {
            "name": "stock_read", "description": "Reads the stock of an item.",
            "parameters": {"type": "object", "properties": {"item": {"type": "string"}},
                           "required": ["item"]}}}]
        page.settings(tools=json.dumps(tools), extra='{"tool_choice": "required"}', thinking="off")
        page.ask("Read the stock of bolts.")
        assert page.one(".call strong").text == "stock_read"
        assert '"item"' in page.one(".call pre").text
        page.shot("tool")
        page.settings(extra="")
        page.one(".result textarea").send_keys("17")
        page.one(".result button").click()
        page.until(lambda: len(page.all(".message.assistant")) == 2, "the answer after the result")
        page.finished()
        assert page.all(".message.tool .body")[0].text == "17"
        assert not page.all(".note:not([hidden])")
        page.settings(tools="", thinking="profile")

    def test_a_hostile_answer_is_inert(self):
        page = self.page
        page.new_chat()
        choice = json.dumps({"structured_outputs": {"choice": [HOSTILE]}, "max_tokens": 4000})
        page.settings(extra=choice, thinking="off")
        page.ask("Hello")
        body = ".message.assistant .body "
        assert "<script>window.owned = 1</script>" in page.answer(), page.answer()
        assert page.driver.execute_script("return window.owned === undefined")
        for forbidden in ("script", "img", "svg", "iframe", "[onerror]", "[onclick]", "b"):
            assert not page.all(body + forbidden), forbidden
        links = [a.get_attribute("href") for a in page.all(body + "a")]
        assert links and all(link.startswith("https://example.invalid/") for link in links), links
        assert all("noopener" in a.get_attribute("rel") for a in page.all(body + "a"))
        page.shot("hostile")
        blocked = [e for e in page.driver.get_log("browser") if "Content Security" in e["message"]]
        assert not blocked, blocked  # nothing even tried
        page.settings(extra="", thinking="profile")

    def test_the_renderer_by_a_table(self):
        page = self.page
        page.js("window.render = (await import('/assets/markdown.js')).renderMarkdown")
        script = ("const d = document.createElement('div'); window.render(d, args[0]);"
                  "return d.innerHTML")
        wrong = []
        for case in json.loads((HERE / "markdown_cases.json").read_text()):
            got = page.js(script, case["text"])
            fits = got == case["html"] if "html" in case else (
                all(part in got for part in case["has"])
                and not any(part in got for part in case.get("lacks", [])))
            if not fits:
                wrong.append((case, got))
        assert not wrong, "\n".join(map(str, wrong))

    def test_hostile_text_renders_in_linear_time(self):
        script = ("const d = document.createElement('div'); const t = args[0].repeat(args[1]);"
                  "const b = performance.now(); window.render(d, t); return performance.now() - b")
        worst = {}
        for unit in HOSTILE_UNITS:
            worst[unit] = self.page.js(script, unit, 100_000 // len(unit))
        slow = {}
        for unit in (unit for unit, ms in worst.items() if ms > 1500):
            quarter = self.page.js(script, unit, 25_000 // len(unit))
            if worst[unit] > 8 * quarter:  # linear: 4, quadratic: 16
                slow[unit] = (quarter, worst[unit])
        print("      slowest of 100 KB:", sorted(worst.items(), key=lambda x: -x[1])[:4])
        assert not slow, slow
        tail = "~" * 50_000 + "`\n" + "-" + " " * 50_000 + "|x\n|-|"
        assert self.page.js(script, tail, 1) < 3000

    def test_theme(self):
        page = self.page
        paper = "return getComputedStyle(document.body).backgroundColor"
        before = page.driver.execute_script(paper)
        page.one("#theme").click()
        assert page.one("#theme").text == "Theme: light"
        page.one("#theme").click()
        assert page.one("#theme").text == "Theme: dark"
        assert page.driver.execute_script(paper) != before
        page.open()
        assert page.driver.execute_script(paper) != before
        page.one("#theme").click()
        assert page.one("#theme").text == "Theme: system"
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": "dark"}]})
        assert page.driver.execute_script(paper) != before
        page.shot("dark")
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})

    def test_phone(self):
        page = self.page
        page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": 390, "height": 780, "deviceScaleFactor": 2, "mobile": True})
        try:
            page.open()
            wide = page.driver.execute_script("return document.documentElement.scrollWidth")
            assert wide <= 390, wide
            assert not page.one("#sidebar").is_displayed()
            page.shot("phone")
            page.one("#menu").click()
            page.until(lambda: page.one("#new-chat").is_displayed(), "the drawer")
            time.sleep(0.3)
            page.shot("phone-drawer")
            page.one("#new-chat").click()
            page.one("#question").send_keys("What is 3 plus 4?")
            page.one("#send").click()
            page.finished()
            assert page.answer() == "7"
            button = page.one("#send").rect
            assert button["x"] + button["width"] <= 390 and button["width"] >= 32
            page.shot("phone-chat")
        finally:
            page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    def test_pictures_are_sent_and_counted_over_the_conversation(self):
        page = self.page
        page.new_chat()
        with tempfile.NamedTemporaryFile(suffix=".png") as file:
            file.write(ONE_PIXEL_PNG)
            file.flush()
            page.one("#file").send_keys(file.name)
            page.until(lambda: page.all(".thumb img"), "the picture in the composer")
        page.js("const data = new DataTransfer();"
                "data.items.add(new File([new Uint8Array(args[0])], 'p.png', {type: 'image/png'}));"
                "document.getElementById('question').dispatchEvent(new ClipboardEvent('paste',"
                "{clipboardData: data, bubbles: true, cancelable: true}))", list(ONE_PIXEL_PNG))
        page.until(lambda: len(page.all(".thumb img")) == 2, "the pasted one beside it")
        page.ask("What is this?")
        assert page.answer() and not page.one(".message.assistant .note").text
        assert len(page.all(".message.user .pictures img")) == 2
        page.shot("picture")
        page.js("const data = new DataTransfer();"
                "for (let k = 0; k < 7; ++k) data.items.add("
                "new File([new Uint8Array(args[0])], 'p.png', {type: 'image/png'}));"
                "document.getElementById('question').dispatchEvent(new ClipboardEvent('paste',"
                "{clipboardData: data, bubbles: true, cancelable: true}))", list(ONE_PIXEL_PNG))
        page.until(lambda: "8 pictures at most" in page.one("#notice").text, "the refusal of a 9th")
        assert len(page.all("#attached .thumb img")) == 6

    def test_export_and_import(self):
        page = self.page
        page.one("#export").click()
        path = self.downloads / "nibble-conversations.json"
        page.until(path.exists, "the exported file")
        time.sleep(0.3)
        saved = json.loads(path.read_text())
        titles = {c["title"] for c in saved["conversations"]}
        assert "What is 123456 plus 654321?" in titles, titles
        one = next(c for c in saved["conversations"] if c["title"].startswith("What is 123456"))
        one["id"], one["title"] = "imported1", "Imported <b>one</b>"
        saved["conversations"] = [one]
        path.write_text(json.dumps(saved))
        page.one("#import-file").send_keys(str(path))
        page.until(lambda: "Imported <b>one</b>" in page.one("#conversations").text, "the import")
        assert page.answer() == "777777"
        path.write_text('{"format": "nibble-conversations", "conversations": [{"id": 1}]}')
        page.one("#import-file").send_keys(str(path))
        page.until(lambda: "malformed" in page.one("#notice").text, "the refusal")
        entries = len(page.all(".entry"))
        page.one(".entry [aria-label='Delete conversation']").click()
        page.one("#ask-yes").click()
        page.until(lambda: len(page.all(".entry")) == entries - 1, "one entry less")

    def test_the_engine_view(self):
        page = self.page
        page.one("#show-engine").click()
        page.until(lambda: "KV pages" in page.one("#engine").text, "the pools")
        words = page.one("#engine").text
        for part in ("Weights", "Prefix cache", "Requests", "State slots", "tokens found"):
            assert part in words, words
        time.sleep(2.5)
        page.shot("engine")
        page.one("#show-engine").click()
        assert page.one("#composer").is_displayed()

    def test_the_documentation(self):
        page = self.page
        page.driver.get(page.url + "/docs")
        page.until(lambda: "/v1/chat/completions" in page.text(), "the routes")
        page.shot("docs")
        page.one("#post-v1-chat-completions summary").click()
        page.until(lambda: "temperature" in page.one("#post-v1-chat-completions").text, "fields")
        page.shot("docs-route")
        page.open()

    def test_no_complaints_in_the_console(self):
        bad = [e for e in self.page.driver.get_log("browser")
               if e["level"] == "SEVERE" and "400 (Bad Request)" not in e["message"]]
        assert not bad, bad


def key_check(nibble, model, folder, downloads):
    """A server with a key: the page opens without one, asks for it, and works with it."""
    with RunningServer(nibble, model, ["--api-key", "sesame"]) as server:
        driver = browser(folder, downloads)
        try:
            page = Page(driver, server.url, None)
            driver.get(server.url + "/")
            page.until(lambda: page.one("#key-dialog").is_displayed(), "the dialog")
            page.one("#key").send_keys("wrong" + Keys.ENTER)
            page.until(lambda: "does not know" in page.one("#key-problem").text, "the refusal")
            page.one("#key").send_keys("sesame" + Keys.ENTER)
            page.until(lambda: page.all("#model option"), "the models")
            assert page.ask("What is 12 plus 7?") == "19"
        finally:
            driver.quit()
        assert server.stop() == 0


def run(check, name):
    begin = time.monotonic()
    try:
        check()
    except Exception:
        print(f"FAIL  {name}")
        traceback.print_exc(file=sys.stdout)
        return False
    print(f"ok    {name} ({time.monotonic() - begin:.1f} s)")
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nibble", required=True, help="path of the program")
    parser.add_argument("--model", required=True, help="checkpoint folder")
    parser.add_argument("--only", default="", help="run the checks whose name contains this")
    parser.add_argument("--shots", default="", help="folder for screenshots")
    parser.add_argument("--take-picture", action="store_true", help="take docs/images/chat.png")
    parser.add_argument("--url", default="", help="a running server instead of an own one")
    options = parser.parse_args()
    shots = pathlib.Path(options.shots) if options.shots else None
    if shots:
        shots.mkdir(parents=True, exist_ok=True)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        downloads = pathlib.Path(folder) / "downloads"
        downloads.mkdir()
        with RunningServer(options.nibble, options.model) as server:
            driver = browser(folder + "/one", downloads)
            try:
                page = Page(driver, options.url or server.url, shots)
                page.open()
                checks = Checks(page, downloads, options.take_picture)
                names = [n for n in vars(Checks) if n.startswith("test_") and options.only in n]
                for name in names:
                    results.append(run(getattr(checks, name), name))
                    if not results[-1]:
                        page.shot("failed-" + name)
            finally:
                driver.quit()
            results.append(run(lambda: server.stop(), "the server leaves"))
        if options.only in "key":
            results.append(run(lambda: key_check(options.nibble, options.model, folder + "/two",
                                                 downloads), "a key is asked for"))
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
