"""Writes tests/golden/tokenizer: a small byte-level BPE tokenizer and what Hugging Face
`tokenizers` makes of a few hundred texts, so that the C++ unit tests need no Python. No arguments.
"""

import json
import pathlib
import random

import tokenizer_cases as cases
from tokenizers import Tokenizer

TARGET = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/tokenizer"
MERGES = 1200
SCRIPTS = (
    "Grüße, Änderung; naïve façade — 12.345,67 €. Привет, мир! Γειά σου Κόσμε. שָׁלוֹם עוֹלָם. "
    "مَرْحَبًا بِالعَالَم ١٢٣. नमस्ते दुनिया क्ष. สวัสดีชาวโลก น้ำ. 안녕하세요 세계. 한국. "
    "你好，世界！こんにちは世界。ｶﾞ㌔ ½ ⅷ ² ① 👩‍👩‍👧‍👦 🇩🇪👍🏽. don't I'LL we'Ve 'ſ\r\n\tx += 1;\r\n"
)


def one_line(items):
    """A JSON list with one item per line, so that changes read well."""
    rows = ",\n".join(json.dumps(item, ensure_ascii=False) for item in items)
    return f"[\n{rows}\n]\n"


def main():
    spec = cases.shortened(cases.train(8000), MERGES)
    added = [token["content"] for token in spec["added_tokens"]]
    whole = Tokenizer.from_str(json.dumps(spec))
    plain = Tokenizer.from_str(json.dumps(cases.without_added(spec)))
    rng = random.Random(11)
    texts = list(cases.hand_written(added[:1] + added[-2:])) + [SCRIPTS] + list(cases.long_runs(48))
    texts += [cases.mixed(rng, added, rng.randint(1, 14)) for _ in range(250)]
    rows = []
    for text in texts:
        ids = whole.encode(text, add_special_tokens=False).ids
        row = {"text": text, "ids": ids}
        user = plain.encode(text, add_special_tokens=False).ids
        if user != ids:
            row["user_ids"] = user
        rows.append(row)
    size = whole.get_vocab_size(with_added_tokens=True)
    decoded = []
    for _ in range(120):
        ids = [rng.randrange(size + 3) for _ in range(rng.randint(1, 12))]
        kept, skipped = (whole.decode(ids, skip_special_tokens=skip) for skip in (False, True))
        decoded.append({"ids": ids, "text": kept, "without_special": skipped})
    TARGET.mkdir(parents=True, exist_ok=True)
    compact = json.dumps(spec, ensure_ascii=False, separators=(",", ":"))
    (TARGET / "tokenizer.json").write_text(compact + "\n", encoding="utf-8")
    (TARGET / "encode.json").write_text(one_line(rows), encoding="utf-8")
    (TARGET / "decode.json").write_text(one_line(decoded), encoding="utf-8")
    for path in sorted(TARGET.glob("*.json")):
        print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
