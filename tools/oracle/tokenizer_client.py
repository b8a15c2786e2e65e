"""Talks to one process of nibble_tokenizer_tool; src/text/tokenizer/tokenizer_tool.cc has the
protocol. Compares nothing.
"""

import struct
import subprocess


class Client:
    def __init__(self, tool, tokenizer_json):
        self.process = subprocess.Popen(
            [tool, tokenizer_json], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.load_seconds = None
        line = self.process.stderr.readline().decode()
        if line.startswith("loaded in "):
            self.load_seconds = float(line.split()[-1])

    def ask(self, kind, payload):
        pipe = self.process
        try:
            pipe.stdin.write(kind + struct.pack("<I", len(payload)) + payload)
            pipe.stdin.flush()
            (count,) = struct.unpack("<I", pipe.stdout.read(4))
        except (BrokenPipeError, struct.error):
            raise RuntimeError("the tool died: " + pipe.stderr.read().decode()[-3000:]) from None
        return list(struct.unpack(f"<{count}i", pipe.stdout.read(4 * count)))

    def encode(self, data, kind=b"r"):
        return self.ask(kind, data.encode() if isinstance(data, str) else data)

    def encode_pieces(self, pieces):
        """pieces: [(text, is_template)]."""
        payload = b""
        for text, is_template in pieces:
            data = text.encode()
            payload += (b"t" if is_template else b"u") + struct.pack("<I", len(data)) + data
        return self.ask(b"m", payload)

    def decode(self, ids, skip_special):
        payload = struct.pack(f"<{len(ids)}i", *ids)
        return bytes(self.ask(b"s" if skip_special else b"d", payload)).decode()

    def timed_encode(self, text):
        """Token ids and the best of three times in seconds."""
        ids = self.ask(b"n", text.encode())
        return ids, min(float(self.process.stderr.readline()) for _ in range(3))

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()
        self.process.stderr.close()
