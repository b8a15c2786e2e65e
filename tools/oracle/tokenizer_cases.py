"""Tokenizers and texts for the tokenizer oracles, made from a seed: a byte-level BPE vocabulary
of 50,000+ tokens with the Qwen3.5 pipeline, variants of it, and texts meant to break it. No checks.
"""

import json
import random
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import trainers

QWEN3_5 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")

_CONTROL = (
    "endoftext im_start im_end object_ref_start object_ref_end box_start box_end quad_start "
    "quad_end vision_start vision_end vision_pad image_pad video_pad"
).split()
_PLAIN = (
    "<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> "
    "<|repo_name|> <|file_sep|> <tool_response> </tool_response> <think> </think>"
).split()
# (content, special) as Qwen3.5 has them: <think> and its like survive skip_special_tokens.
ADDED = [(f"<|{name}|>", True) for name in _CONTROL] + [(name, False) for name in _PLAIN]

_LETTERS = {  # ranges that words are drawn from
    "latin": (0x61, 0x7A), "accented": (0xDF, 0xFF), "cyrillic": (0x430, 0x44F),
    "greek": (0x3B1, 0x3C9), "arabic": (0x627, 0x64A), "hebrew": (0x5D0, 0x5EA),
    "devanagari": (0x905, 0x94D), "thai": (0xE01, 0xE3A), "hangul": (0xAC00, 0xAD00),
    "han": (0x4E00, 0x5400), "kana": (0x3041, 0x3096), "emoji": (0x1F300, 0x1F5FF),
}


def training_texts(seed=20240501, words=240_000):
    """Lines of invented words of many scripts, Zipf-like: enough for 50,000 merges."""
    rng = random.Random(seed)
    lexicon = []
    for script, (low, high) in _LETTERS.items():
        letters = [chr(c) for c in range(low, high + 1)]
        weights = [1 / (i + 3) for i in range(len(letters))]
        for _ in range(26_000 if script == "latin" else 3_600):
            word = "".join(rng.choices(letters, weights, k=rng.randint(2, 9)))
            lexicon.append(word.capitalize() if rng.random() < 0.1 else word)
    rng.shuffle(lexicon)
    joints = [" "] * 12 + [", ", ". ", "\n", "\n\n", " = ", "();\n", "    ", "_", "-", "'s ", "\t"]
    line = []
    for i in range(words):
        # Every word comes a few times, the first ones often.
        at = i % len(lexicon) if i % 3 else int(rng.random() ** 4 * len(lexicon))
        word = lexicon[at]
        line.append(word + (str(rng.randint(0, 99)) if i % 37 == 0 else "") + rng.choice(joints))
        if len(line) == 200:
            yield "".join(line)
            line = []
    yield "".join(line)


def train(vocab_size):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN3_5), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(training_texts(), trainer)
    tokenizer.add_tokens(
        [AddedToken(text, special=special, normalized=False) for text, special in ADDED]
    )
    return json.loads(tokenizer.to_str())


def shortened(spec, merges):
    """The tokenizer with only the first `merges` merges: small, and of the same kind."""
    spec = json.loads(json.dumps(spec))
    model = spec["model"]
    pairs = [m.split(" ") if isinstance(m, str) else m for m in model["merges"][:merges]]
    texts = sorted(pre_tokenizers.ByteLevel.alphabet())
    texts += [t for t in dict.fromkeys(a + b for a, b in pairs) if t not in set(texts)]
    model["vocab"] = {text: i for i, text in enumerate(texts)}
    model["merges"] = pairs
    for i, token in enumerate(spec["added_tokens"]):
        token["id"] = len(texts) + i
    return spec


def with_pattern(spec, pattern):
    spec = json.loads(json.dumps(spec))
    spec["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {"Regex": pattern}
    return spec


def with_added(spec, tokens):
    """Appends added tokens given as dictionaries of AddedToken's fields."""
    spec = json.loads(json.dumps(spec))
    first = len(spec["model"]["vocab"]) + len(spec["added_tokens"])
    for i, fields in enumerate(tokens):
        token = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=False)
        spec["added_tokens"].append(dict(token, id=first + i) | fields)
    return spec


def without_added(spec):
    spec = json.loads(json.dumps(spec))
    spec["added_tokens"] = []
    return spec


def variants(spec):
    """name -> specification: the other pipelines that this program loads."""
    small = shortened(spec, 3000)
    no_nfc = json.loads(json.dumps(small))
    no_nfc["normalizer"] = None
    whole = json.loads(json.dumps(small))
    whole["model"]["ignore_merges"] = True
    whole["model"]["merges"] = whole["model"]["merges"][:1500]  # some tokens no merge reaches
    byte_level = json.loads(json.dumps(small))
    byte_level["pre_tokenizer"] = dict(
        type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True
    )
    old_merges = json.loads(json.dumps(small))
    old_merges["model"]["merges"] = [" ".join(m) for m in old_merges["model"]["merges"]]
    flags = with_added(
        small,
        [
            dict(content="<left>", lstrip=True),
            dict(content="<right>", rstrip=True),
            dict(content="<both>", lstrip=True, rstrip=True, special=True),
            dict(content="<nfc\u00e9>", normalized=True),
            dict(content="<nfd" + "e\u0301>", normalized=True, lstrip=True),
            dict(content="<thinking"),
            dict(content="\u65e5\u672c", normalized=True),
            dict(content="\u00e9\u00e9", special=True),
        ],
    )
    return {
        "no normalizer": no_nfc,
        "ignore_merges": whole,
        "ByteLevel regex": byte_level,
        "transformers 4 merges": old_merges,
        "token flags": flags,
        "Qwen2 pattern": with_pattern(small, QWEN2),
        "foreign pattern": with_pattern(small, LLAMA3),
    }


# --- texts -------------------------------------------------------------------------------------

_INTERESTING = (
    list("aZ09 '\"<>|_-.,!?()\u00a0\u3000\u2028\u0085\u200d\ufe0f\u00e9\u017f\u0130\u00df")
    + [" ", "  ", "\t", "\n", "\r\n", "\r", "\v", "\f", "\x00", "\x1c", "\x7f", "\ufeff", "\u180e"]
    + ["'s", "'S", "'\u017f", "'ll", "'LL", "'re", "'vE", "'l", "n't", "''s", "\u2019s"]
    + ["\u0301", "\u0327", "\u0323", "\u0345", "e\u0301", "a\u0323\u0301", "\u1e69", "\u0958"]
    + ["\u1100\u1161\u11a8", "\uac00\u11a8", "\uac01", "\u11a8", "\u0b47\u0b56", "\u0cc6\u0cc2"]
    + ["\u0915\u094d\u0937", "\u0e01\u0e33", "\u0644\u0627", "\u05d0\u05bc", "\u4f60\u597d"]
    + ["\u212b", "\u2126", "\uf900", "\U0002f800", "\U0001d15e", "\u0f71\u0f72\u0f74", "\u0344"]
    + ["\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f44d\U0001f3fd", "\U0001f1e9\U0001f1ea"]
    + ["\u07fd", "\u0898", "\U00011938", "\U00011935\U00011930", "\u1acf", "\U0001e4ec", "\u0897"]
    + ["\U00010d40", "\U000113c7", "\U0002ebf0", "\U0010ffff", "\ufffd", "\ufffe", "\u2167"]
    + ["\ufb01", "\u00b2"]
    + ["<|im_", "im_end|>", "<|", "|>", "<think", "</think>>", "<|im_end|", "<<|im_end|>>", "<tool"]
    + ["the", " word", "Hello", "1234567", "3.14", "foo_bar", "CamelCase", "x" * 30, " " * 20]
)


def mixed(rng, tokens, length):
    """`length` fragments: interesting ones, random code points of every plane, added tokens."""
    parts = []
    for _ in range(length):
        kind = rng.random()
        if kind < 0.62:
            parts.append(rng.choice(_INTERESTING))
        elif kind < 0.72:
            parts.append(rng.choice(tokens))
        elif kind < 0.80:
            token = rng.choice(tokens)
            parts.append(token[: rng.randrange(len(token))])
        else:
            code = rng.randrange(rng.choice([0x80, 0x800, 0x3000, 0x10000, 0x20000, 0x110000]))
            parts.append(chr(code) if not 0xD800 <= code < 0xE000 else "\ufffd")
    return "".join(parts)


def every_code_point():
    """Every scalar value once; those of planes 0, 1, 14 also between letters, marks, spaces."""
    codes = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    for i in range(0, len(codes), 2048):
        batch = codes[i : i + 2048]
        yield "".join(batch)
        company = [c for c in batch if ord(c) < 0x20000 or 0xE0000 <= ord(c) < 0xE0200]
        company = [c for c in company if unicodedata.category(c) not in ("Lo", "Co")] or batch[:40]
        yield "".join(f" a\u0301{c}\u0323 {c}1'{c}\n" for c in company)


def long_runs(length):
    for unit in ["a", " ", "\n", "\u00e9", "\u4e2d", "1", "!", "=", "\t", "\r\n", "ab", "\u0301",
                 "\u0316\u0301", "\U0001f600", "\uac00", "<|", "<|im_end|>", " \n", "'", "\x00"]:
        yield unit * (length // len(unit))
    yield "a" + " " * length + "b"
    yield " " * length + "\n" + " " * length


def hand_written(tokens):
    yield from ["", " ", "\n", "\r\n\r\n", " \n ", "a \n\n  b", "a  b", "   a", "I'll we'Re 's",
                "1234567890", "x=1;\r\n\ty = 2\r\n", "caf\u00e9 cafe\u0301", "\u1112\u1161\u11ab",
                "The quick brown fox jumps over the lazy dog.", "\ufeffBOM", "a\u200bb"]
    for token in tokens:
        yield token
        yield f"a{token}b"
        yield f" {token} "
        yield token[:-1]
        yield token[1:]
        yield token + token
        yield token + "\u0301x"
        yield "\n" + token[: len(token) // 2] + token


def texts(tokens, seed=7, mixes=12_000, run_length=20_000):
    """Everything but every_code_point."""
    rng = random.Random(seed)
    yield from hand_written(tokens)
    yield from long_runs(run_length)
    for i in range(mixes):
        yield mixed(rng, tokens, rng.randint(1, 40 if i % 50 else 1500))


def invalid_bytes(rng, count):
    """Byte strings that are mostly not UTF-8: random bytes, damaged and truncated characters."""
    yield from [b"\xff", b"a\xc3", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80",
                b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xe2\x28\xa1",
                b"\x80\x80", b"\xe0\x80\xaf"]
    for _ in range(count):
        data = bytearray("".join(rng.choices(_INTERESTING, k=rng.randint(1, 12))).encode())
        for _ in range(rng.randint(1, 5)):
            at = rng.randrange(len(data) + 1)
            if rng.random() < 0.5:
                data[at:at] = bytes(rng.randrange(128, 256) for _ in range(rng.randint(1, 4)))
            else:
                del data[at : at + 1]
        yield bytes(data)
