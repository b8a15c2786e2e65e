"""The Jinja2 environment in which Hugging Face transformers renders chat templates, and the process
that answers for Nibble (src/text/template_tool.cc has the protocol). No comparison happens here.
"""

import datetime
import json
import subprocess
import threading
import warnings

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

warnings.simplefilter("ignore", SyntaxWarning)  # of the Python that Jinja makes

NOW = 1_767_225_599  # 2025-12-31 23:59:59


class GenerationTag(jinja2.ext.Extension):
    """{% generation %}: marks the assistant's tokens for training; renders as its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_same")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _same(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def strftime_now(format):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(format)

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True,
        extensions=[GenerationTag, jinja2.ext.loopcontrols],
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


class Reference:
    """Renders with Jinja2: ("text", TEXT) or ("error", MESSAGE, raised by the template or not)."""

    def __init__(self):
        self.environment = environment()
        self.templates = {}

    def compile(self, name, source, special_tokens):
        try:
            self.templates[name] = (self.environment.from_string(source), special_tokens or {})
        except jinja2.exceptions.TemplateSyntaxError as error:
            return str(error)
        except SyntaxError as error:  # Jinja made Python that Python refuses
            return str(error)
        return None

    def render(self, request):
        template, special_tokens = self.templates[request["render"]]
        variables = {**special_tokens, **(request.get("kwargs") or {})}
        try:
            text = template.render(
                messages=request["messages"], tools=request.get("tools"),
                documents=request.get("documents"),
                add_generation_prompt=request.get("add_generation_prompt", False), **variables)
        except jinja2.exceptions.TemplateError as error:
            return "error", str(error), type(error) is jinja2.exceptions.TemplateError
        except Exception as error:  # TypeError, ValueError ... of Python itself
            return "error", str(error), False
        return "text", text


class Nibble:
    def __init__(self, tool):
        self.process = subprocess.Popen([tool], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, request):
        return next(self.ask_all([request]))

    def ask_all(self, requests):
        """Answers in order; a thread writes ahead, so that no side waits for the other."""
        writer = threading.Thread(target=self._write, args=(requests,), daemon=True)
        writer.start()
        for request in requests:
            answer = self.process.stdout.readline()
            if not answer:
                raise SystemExit(f"the tool died at or before: {json.dumps(request)[:2000]}")
            yield json.loads(answer)
        writer.join()

    def _write(self, requests):
        for request in requests:
            line = json.dumps(request, ensure_ascii=False) + "\n"
            self.process.stdin.write(line.encode())
        self.process.stdin.flush()
