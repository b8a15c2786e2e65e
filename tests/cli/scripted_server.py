"""A server of OpenAI's streams that does what a script says, at times that are known: for tests of
`nibble bench serve`. It computes nothing."""
import http.server
import json
import threading
import time


class Script:
    """The plan of each request, by its place in the order of arrival; the last entry repeats."""

    def __init__(self, *plans, models=("scripted",), key=None, slow_first=0.0):
        """`slow_first`: seconds in which nothing of the first request's body is read."""
        self.slow_first = slow_first
        self.plans = plans or ({},)
        self.models = models
        self.key = key
        self.lock = threading.Lock()
        self.bodies = []
        self.arrivals = []
        self.running = 0
        self.running_most = 0

    def take(self, body):
        with self.lock:
            self.arrivals.append(time.monotonic())
            self.bodies.append(body)
            self.running += 1
            self.running_most = max(self.running_most, self.running)
            return self.plans[min(len(self.bodies) - 1, len(self.plans) - 1)]

    def wait_before_reading(self):
        with self.lock:
            seconds, self.slow_first = self.slow_first, 0.0
        time.sleep(seconds)

    def leave(self):
        with self.lock:
            self.running -= 1


class Handler(http.server.BaseHTTPRequestHandler):
    """Keys of a plan: first, gap (seconds), tokens, per_event, status, cut (events before the
    connection is closed), usage, error (events before it), silent (seconds without a word) and
    cached."""
    protocol_version = "HTTP/1.1"
    script = None

    def log_message(self, *_):
        pass

    def answer(self, status, value, headers=()):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, text in headers:
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        if self.script.key and self.headers["Authorization"] != f"Bearer {self.script.key}":
            return self.answer(401, {"error": {"message": "no key"}})
        return self.answer(200, {"data": [{"id": name} for name in self.script.models]})

    def do_POST(self):
        self.script.wait_before_reading()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        plan = self.script.take(body)
        try:
            self.stream(body, plan)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            self.script.leave()

    def chunk(self, text):
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def event(self, value):
        self.chunk("data: " + (value if isinstance(value, str) else json.dumps(value)) + "\n\n")

    def stream(self, body, plan):
        if plan.get("status", 200) != 200:
            return self.answer(plan["status"], {"error": {"message": "no room now", "code": 1}})
        time.sleep(plan.get("silent", 0))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.chunk(": a comment\n\n")
        self.tokens(body, plan)
        if plan.get("cut") is not None:
            self.close_connection = True
            return None
        usage = {"prompt_tokens": self.prompt_tokens(body),
                 "completion_tokens": self.count(body, plan),
                 "prompt_tokens_details": {"cached_tokens": plan.get("cached", 0)}}
        if plan.get("usage", True):
            self.event({"choices": [], "usage": usage})
        self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")
        return None

    @staticmethod
    def prompt_tokens(body):
        prompt = body.get("prompt")
        if isinstance(prompt, list):
            return len(prompt)
        text = prompt or " ".join(m["content"] for m in body["messages"])
        return 2 * len(text.split()) + 11  # two tokens a word, and a template

    @staticmethod
    def count(body, plan):
        asked = body.get("max_tokens", body.get("max_completion_tokens"))
        return plan.get("tokens", asked)

    def tokens(self, body, plan):
        time.sleep(plan.get("first", 0.02))
        chat = "messages" in body
        per_event = plan.get("per_event", 1)
        events = self.count(body, plan) // per_event
        for number in range(events):
            if plan.get("cut") == number:
                return
            if plan.get("error") == number:
                self.event({"error": {"message": "the card is lost"}})
                return
            if number:
                time.sleep(plan.get("gap", 0.005))
            choice = {"index": 0, "finish_reason": "length" if number == events - 1 else None}
            choice.update({"delta": {"content": "x"}} if chat else {"text": "x"})
            chunk = {"choices": [choice]}
            if body["stream_options"].get("continuous_usage_stats"):
                chunk["usage"] = {"prompt_tokens": self.prompt_tokens(body),
                                  "completion_tokens": (number + 1) * per_event}
            self.event(chunk)


class ScriptedServer:
    """`with ScriptedServer(script) as server: server.url`"""

    def __init__(self, script):
        handler = type("Scripted", (Handler,), {"script": script})
        kind = type("Server", (http.server.ThreadingHTTPServer,), {"request_queue_size": 256})
        self.server = kind(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
