"""Throughput of Nibble's tokenizer beside Hugging Face `tokenizers`, one thread each, same texts.

Usage: bench/tokenizer.py TOOL [TOKENIZER.json]. TOOL is nibble_tokenizer_tool of a release build;
the default tokenizer is the 52,000-token one of the oracle, trained into build/cache. Prints a
table: best of three, MB/s of UTF-8. The token ids are compared too; it is no test of correctness.
"""

import json
import os
import pathlib
import random
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools/oracle"))

import tokenizer_cases as cases  # noqa: E402
from tokenizer_client import Client  # noqa: E402
from tokenizer_test import trained  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402


def texts():
    """name -> about 4 MB of text; words repeat as in prose, or never."""
    lines = list(cases.training_texts())
    everything = "".join(lines)
    latin = "".join(c if c < "\u0250" else " e" for c in everything)
    rng = random.Random(3)
    python = "".join(p.read_text(encoding="utf-8") for p in sorted(ROOT.glob("tools/**/*.py")))
    han = "".join(rng.choices([chr(c) for c in range(0x4E00, 0x5400)], k=1_300_000))
    chat = "".join(f"<|im_start|>user\n{line}<|im_end|>\n" for line in lines)
    cut = 4_000_000
    return {
        "mixed scripts": everything[:cut],
        "Latin prose": latin[:cut],
        "source code": (python * (cut // len(python) + 1))[:cut],
        "chat with special tokens": chat[:cut],
        "Han without spaces": han,
        "random letters": "".join(rng.choices("abcdefghijklmnopqrstuvwxyz ", k=cut)),
    }


def best_of_three(work):
    spent = []
    for _ in range(3):
        began = time.perf_counter()
        result = work()
        spent.append(time.perf_counter() - began)
    return result, min(spent)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    path = sys.argv[2] if len(sys.argv) == 3 else trained(ROOT / "build/cache")
    began = time.perf_counter()
    theirs = Tokenizer.from_file(str(path))
    their_load = time.perf_counter() - began
    client = Client(sys.argv[1], path)
    size = len(json.loads(pathlib.Path(path).read_text(encoding="utf-8"))["model"]["vocab"])
    print(f"{size} tokens; loaded in {1000 * client.load_seconds:.1f} ms, "
          f"Hugging Face {1000 * their_load:.1f} ms")
    print(f"{'text':26}{'MB':>6}{'tokens':>10}{'Nibble':>9}{'HF':>7}  MB/s")
    for name, text in texts().items():
        megabytes = len(text.encode()) / 1e6
        ids, seconds = client.timed_encode(text)
        expected, their_seconds = best_of_three(
            lambda: theirs.encode(text, add_special_tokens=False).ids)
        same = "" if ids == expected else "  DIFFERENT IDS"
        print(f"{name:26}{megabytes:6.1f}{len(ids):10}{megabytes / seconds:9.1f}"
              f"{megabytes / their_seconds:7.1f}{same}")
    client.close()


if __name__ == "__main__":
    main()
