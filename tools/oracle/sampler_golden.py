"""Writes tests/golden/sampler/cases.json: what sampling must give.

Python's standard library only, and nothing shared with the C++ code: distributions are
dictionaries, every rule is a filter over the whole vocabulary, the generator is written from its
paper. Probabilities and log-probabilities are computed in FP64. Draws and masses follow the
definition of src/model/token_choice.h, F32 operations rounded one by one and integer weights, and
must be equal; this script checks that the draws are those of the FP64 distribution too, but where
the random number lies within 1e-5 of a border. Run again only to change a case; `--check` compares
instead of writing.
"""

import json
import math
import pathlib
import random
import struct
import sys

PATH = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/sampler/cases.json"
ROWS = 24
CASES = 64
DRAWS = 24


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def philox4x32_10(counter, key):
    """Salmon et al., SC 2011."""
    c, k = list(counter), list(key)
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * c[0], 1 << 32)
        high1, low1 = divmod(0xCD9E8D57 * c[2], 1 << 32)
        c = [high1 ^ c[1] ^ k[0], low1, high0 ^ c[3] ^ k[1], low0]
        k = [(k[0] + 0x9E3779B9) % (1 << 32), (k[1] + 0xBB67AE85) % (1 << 32)]
    return c


def random_bits(seed, choice, position):
    block = philox4x32_10(
        [position % (1 << 32), position >> 32, choice, 0], [seed % (1 << 32), seed >> 32]
    )
    return block[0] << 32 | block[1]


def short(value):
    """Twelve digits: the same text whatever library computed the exponentials."""
    return float(f"{value:.12g}")


def softmax(scores):
    best = max(scores.values())
    weights = {t: math.exp(s - best) for t, s in scores.items()}
    total = math.fsum(weights.values())
    return {t: w / total for t, w in weights.items()}


def ranked(scores):
    return sorted(scores, key=lambda t: (-scores[t], t))


def distribution(case):
    """Token -> probability after bias, penalties, temperature, min-p, top-k, top-p."""
    allowed = set(range(ROWS)) - set(case["padding"]) - set(case["masked"])
    scores = {t: case["logits"][t] for t in allowed}
    for token, bias in case["logit_bias"]:
        if token in scores:
            scores[token] += bias
    for token in scores:
        if token in case["prompt"] or token in case["generated"]:
            factor = case["repetition_penalty"]
            scores[token] = scores[token] / factor if scores[token] > 0 else scores[token] * factor
        if token in case["generated"]:
            uses = case["generated"].count(token)
            scores[token] -= case["presence_penalty"] + case["frequency_penalty"] * uses
    if case["temperature"] < 1e-5:
        return {ranked(scores)[0]: 1.0}
    scores = {t: s / case["temperature"] for t, s in scores.items()}
    p = softmax(scores)
    likeliest = max(p.values())
    scores = {t: scores[t] for t in scores if p[t] >= case["min_p"] * likeliest}
    if case["top_k"] > 0:
        scores = {t: scores[t] for t in ranked(scores)[: case["top_k"]]}
    p = softmax(scores)
    kept, before = {}, 0.0
    for token in ranked(scores):
        if kept and before >= case["top_p"]:
            break
        kept[token] = scores[token]
        before += p[token]
    return softmax(kept)


def draw(p, u):
    cumulative = 0.0
    for token in sorted(p):
        cumulative += p[token]
        if cumulative > u:
            return token
    return max(p)


# The definition in F32 and integers. A double holds the exact sum, product or quotient of two F32
# numbers closely enough that rounding it again gives the F32 result.
POLYNOMIAL = [float.fromhex(x) for x in (
    "0x1.41fbbcp-13", "0x1.5f3e54p-10", "0x1.3b2d4cp-7", "0x1.c6aee8p-5", "0x1.ebfbdcp-3",
    "0x1.62e430p-1", "0x1.0p0")]
LOG2_E = float32(1.44269504)


def weight(logit, best, scale):
    x = float32(float32(logit - best) * scale)
    if not x >= -45:
        return 0
    whole = round(x)
    f = float32(x - whole)
    p = POLYNOMIAL[0]
    for coefficient in POLYNOMIAL[1:]:
        p = float32(float32(p * f) + coefficient)
    return (int(p * (1 << 23)) << 21) >> -whole


def adjusted(case):
    """Token -> logit after bias and penalties."""
    scores = {t: case["logits"][t] for t in range(ROWS)
              if t not in case["padding"] and t not in case["masked"]}
    for token, bias in case["logit_bias"]:
        if token in scores:
            scores[token] = float32(scores[token] + float32(bias))
    factor = float32(case["repetition_penalty"])
    for t in scores:
        if t in case["prompt"] or t in case["generated"]:
            scores[t] = float32(scores[t] / factor if scores[t] > 0 else scores[t] * factor)
        if t in case["generated"]:
            uses = float32(float32(case["frequency_penalty"]) * case["generated"].count(t))
            scores[t] = float32(scores[t] - float32(float32(case["presence_penalty"]) + uses))
    return scores


def exact_draw(case, bits):
    scores = adjusted(case)
    best = ranked(scores)[0]
    if case["temperature"] < 1e-5:
        return best
    scale = float32(math.log2(math.e) / case["temperature"])
    weights = {t: weight(s, scores[best], scale) for t, s in scores.items()}
    least = math.ceil(case["min_p"] * (1 << 44))
    order = [t for t in ranked(scores) if weights[t] >= least]
    if case["top_k"] > 0:
        order = order[: case["top_k"]]
    if case["top_p"] < 1:
        share = int(min(case["top_p"], 1 - 2**-53) * 2.0**64)
        bound = max(sum(weights[t] for t in order) * share >> 64, 1)
        kept, before = [], 0
        for t in order:
            if before >= bound:
                break
            kept.append(t)
            before += weights[t]
        order = kept
    target = sum(weights[t] for t in order) * bits >> 64
    cumulative = 0
    for t in sorted(order):
        cumulative += weights[t]
        if cumulative > target:
            return t
    raise AssertionError("no token")


def near_border(p, u):
    cumulative = 0.0
    for token in sorted(p):
        cumulative += p[token]
        if abs(cumulative - u) < 1e-5:
            return True
    return False


def logprobs(case, token, top):
    """Log-probabilities of the raw logits of all rows; padding is in the sum and never listed."""
    best = max(case["logits"])
    total = best + math.log(math.fsum(math.exp(x - best) for x in case["logits"]))
    listed = {t: case["logits"][t] for t in range(ROWS) if t not in case["padding"]}
    order = ranked({**listed, token: case["logits"][token]})
    return {
        "token": token,
        "logprob": short(case["logits"][token] - total),
        "rank": order.index(token) + 1,
        "top": [[t, short(case["logits"][t] - total)] for t in ranked(listed)[:top]],
    }


def make_case(index):
    rng = random.Random(f"sampler {index}")
    pick = lambda chance, value, off: value() if rng.random() < chance else off
    logits = [float32(rng.gauss(0, 2.5)) for _ in range(ROWS)]
    for _ in range(pick(0.3, lambda: rng.randrange(6), 0)):  # ties
        logits[rng.randrange(ROWS)] = logits[rng.randrange(ROWS)]
    case = {
        "logits": logits,
        "padding": sorted(rng.sample(range(ROWS), pick(0.5, lambda: rng.randrange(1, 5), 0))),
        "masked": sorted(rng.sample(range(ROWS), pick(0.4, lambda: rng.randrange(1, 12), 0))),
        "prompt": [rng.randrange(ROWS) for _ in range(rng.randrange(12))],
        "generated": [rng.randrange(ROWS) for _ in range(rng.randrange(12))],
        "temperature": pick(0.85, lambda: rng.choice([0.2, 0.6, 0.7, 1.0, 1.7, 5.0]), 0.0),
        "top_k": pick(0.4, lambda: rng.randrange(1, ROWS + 4), 0),
        "top_p": pick(0.5, lambda: rng.choice([0.0, 0.1, 0.5, 0.8, 0.95, 0.999]), 1.0),
        "min_p": pick(0.3, lambda: rng.choice([0.01, 0.05, 0.3, 1.0]), 0.0),
        "presence_penalty": pick(0.3, lambda: rng.uniform(-2, 2), 0.0),
        "frequency_penalty": pick(0.3, lambda: rng.uniform(-2, 2), 0.0),
        "repetition_penalty": pick(0.3, lambda: rng.choice([0.5, 0.9, 1.1, 1.3, 2.0]), 1.0),
        "logit_bias": [
            [rng.randrange(ROWS), rng.choice([-100.0, -1.5, 2.0, 100.0])]
            for _ in range(pick(0.3, lambda: rng.randrange(1, 4), 0))
        ],
        "seed": str(rng.choice([0, 1, rng.getrandbits(64)])),
        "choice": rng.choice([0, 1, 127]),
        "position": str(rng.choice([0, 5, (1 << 32) - 3])),
    }
    if len(set(case["padding"]) | set(case["masked"])) == ROWS:
        case["masked"] = []
    return case


def solve(case):
    p = distribution(case)
    seed, position = int(case["seed"]), int(case["position"])
    case["probabilities"] = [short(p.get(t, 0.0)) for t in range(ROWS)]
    case["draws"] = []
    for i in range(DRAWS):
        bits = random_bits(seed, case["choice"], position + i)
        case["draws"].append(exact_draw(case, bits))
        assert case["draws"][-1] == draw(p, bits / (1 << 64)) or near_border(p, bits / (1 << 64))
    best = max(case["logits"])
    case["mass"] = str(sum(weight(x, best, LOG2_E) for x in case["logits"]))
    case["logprobs"] = [logprobs(case, t, 5) for t in (case["draws"][0], 0, ROWS - 1)]
    return case


def main():
    cases = [solve(make_case(i)) for i in range(CASES)]
    text = json.dumps({"rows": ROWS, "cases": cases}, separators=(",", ":"))
    text = text.replace('},{"logits"', '},\n{"logits"') + "\n"
    if "--check" in sys.argv:
        same = PATH.read_text() == text
        print("as written" if same else f"{PATH} differs from what this script makes")
        return 0 if same else 1
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
