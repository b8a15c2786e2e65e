"""Compares Nibble's tokenizer with Hugging Face `tokenizers` on every text it can think of: encode
and decode, a freshly trained vocabulary of 50,000+ tokens, its variants, and Pebble's tokenizer.

Usage: tokenizer_test.py TOOL CACHE_FOLDER, where TOOL is the built nibble_tokenizer_tool.
Prints the first differences and 'N passed, N failed'; exit status 1 on any.
"""

import json
import pathlib
import random
import re
import sys
import tempfile
import time

import tokenizer_cases as cases
from tokenizer_client import Client
from tokenizers import Tokenizer

PEBBLE = pathlib.Path(__file__).resolve().parents[2] / "pebble/model/tokenizer.json"
VOCAB_SIZE = 52_000
RECIPE = "1"  # part of the cached file's name: raise it when training changes


class Score:
    def __init__(self):
        self.passed = 0
        self.failed = 0

    def check(self, name, source, ours, theirs):
        if ours == theirs:
            self.passed += 1
            return
        self.failed += 1
        if self.failed <= 10:
            at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), None)
            at = min(len(ours), len(theirs)) if at is None else at
            print(f"DIFFERS {name}: {source[:200]!r}\n  from {at}: ours {ours[at : at + 12]!r}"
                  f"\n  Hugging Face {theirs[at : at + 12]!r}")


def pieces_by_hand(plain, added, pieces):
    """The definition of mixed text: matches only inside template text, the rest as one string."""
    text = "".join(part for part, _ in pieces)
    runs, at = [], 0
    for part, is_template in pieces:
        if is_template and part:
            if runs and runs[-1][1] == at:
                runs[-1][1] += len(part)
            else:
                runs.append([at, at + len(part)])
        at += len(part)
    longest_first = sorted(added, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, longest_first)))
    ids, done = [], 0
    for begin, end in runs:
        for match in pattern.finditer(text, begin, end):
            ids += plain.encode(text[done : match.start()], add_special_tokens=False).ids
            ids.append(added[match.group()])
            done = match.end()
    return ids + plain.encode(text[done:], add_special_tokens=False).ids


def compare_encoding(score, name, client, tokenizer, texts, kind=b"r"):
    for i in range(0, len(texts), 256):  # Hugging Face's threads take batches; ours one by one
        batch = texts[i : i + 256]
        for text, theirs in zip(batch, tokenizer.encode_batch(batch, add_special_tokens=False)):
            score.check(name, text, client.encode(text, kind), theirs.ids)


def compare_bytes(score, name, client, whole, rng, count):
    for data in cases.invalid_bytes(rng, count):
        theirs = whole.encode(data.decode("utf-8", "replace"), add_special_tokens=False).ids
        score.check(f"{name}, invalid UTF-8", data, client.encode(data), theirs)


def compare_pieces(score, name, client, spec, plain, rng, count):
    added = {token["content"]: token["id"] for token in spec["added_tokens"]}
    for _ in range(count):
        text = cases.mixed(rng, list(added), rng.randint(1, 12))
        cuts = sorted(rng.randrange(len(text) + 1) for _ in range(rng.randint(0, 5)))
        bounds = [0, *cuts, len(text)]
        pieces = [(text[a:b], rng.random() < 0.6) for a, b in zip(bounds, bounds[1:])]
        score.check(f"{name}, pieces", str(pieces), client.encode_pieces(pieces),
                    pieces_by_hand(plain, added, pieces))


def compare_decoding(score, name, client, whole, texts, rng, count):
    size = whole.get_vocab_size(with_added_tokens=True)
    sequences = [whole.encode(text, add_special_tokens=False).ids for text in texts]
    for _ in range(count):  # ids out of any order: halves of characters, padded rows
        sequences.append([rng.randrange(size + 20) for _ in range(rng.randint(1, 40))])
    sequences.append(list(range(size)))
    for ids in sequences:
        for skip in (False, True):
            theirs = whole.decode(ids, skip_special_tokens=skip)
            score.check(f"{name}, decode", str(ids), client.decode(ids, skip), theirs)


def compare(score, name, tool, path, effort):
    """effort 2: everything; 1: a variant; mixes shrink with it."""
    began, before = time.monotonic(), score.passed + score.failed
    spec = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    client = Client(tool, path)
    rng = random.Random(name)
    added = [token["content"] for token in spec["added_tokens"]]
    if effort == 2:
        texts = list(cases.texts(added))
    else:
        texts = list(cases.hand_written(added)) + list(cases.long_runs(600))
        texts += [cases.mixed(rng, added, rng.randint(1, 40)) for _ in range(4000)]
    whole = Tokenizer.from_str(json.dumps(spec))
    plain = Tokenizer.from_str(json.dumps(cases.without_added(spec)))
    compare_encoding(score, f"{name}, encode", client, whole, texts)
    compare_encoding(score, f"{name}, user text", client, plain, texts, b"p")
    if effort == 2:
        everything = list(cases.every_code_point())
        compare_encoding(score, f"{name}, every code point", client, whole, everything)
    compare_bytes(score, name, client, whole, rng, 1000 * effort)
    simple = not any(t["normalized"] or t["lstrip"] or t["rstrip"] for t in spec["added_tokens"])
    if simple:
        compare_pieces(score, name, client, spec, plain, rng, 4000 * effort)
    compare_decoding(score, name, client, whole, rng.sample(texts, 300), rng, 500 * effort)
    client.close()
    print(f"{name}: {score.passed + score.failed - before} comparisons, "
          f"{time.monotonic() - began:.1f} s, loaded in {1000 * client.load_seconds:.0f} ms")


def trained(cache):
    """The large tokenizer, from the cache or trained now."""
    path = cache / f"tokenizer-{VOCAB_SIZE}-{RECIPE}.json"
    if not path.exists():
        began = time.monotonic()
        spec = cases.train(VOCAB_SIZE)
        cache.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(spec, ensure_ascii=False), encoding="utf-8")
        print(f"trained {len(spec['model']['vocab'])} tokens in {time.monotonic() - began:.1f} s")
    return path


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.split("\n\n")[1])
    tool, cache = sys.argv[1], pathlib.Path(sys.argv[2])
    score = Score()
    large = trained(cache)
    spec = json.loads(large.read_text(encoding="utf-8"))
    score.check("the trained vocabulary", "size", len(spec["model"]["vocab"]) > 50_000, True)
    compare(score, "trained", tool, large, effort=2)
    with tempfile.TemporaryDirectory() as folder:
        for name, variant in cases.variants(spec).items():
            path = pathlib.Path(folder) / f"{name.replace(' ', '-')}.json"
            path.write_text(json.dumps(variant, ensure_ascii=False), encoding="utf-8")
            compare(score, name, tool, path, effort=1)
    if PEBBLE.exists():
        compare(score, "Pebble", tool, PEBBLE, effort=2)
    else:
        print(f"no {PEBBLE.name} of Pebble: skipped")
    print(f"{score.passed} passed, {score.failed} failed")
    return 1 if score.failed else 0


if __name__ == "__main__":
    sys.exit(main())
