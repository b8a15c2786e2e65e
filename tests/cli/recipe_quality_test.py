#!/usr/bin/env python3
"""The cost of each recipe on Pebble, as mean KL divergence from BF16, against a committed bar.

recipe_quality_test.py --nibble PROGRAM --model PEBBLE_FOLDER [--planted]

Pebble solves its tasks as well after quantizing as before, so accuracy cannot show that rounding
got worse; divergence does. The text is fixed, and neither rounding nor scoring depends on the
machine, so a bar can lie close above the figure that `nibble score --reference` gave. With
--planted the weights are rounded worse (amax instead of search; FP8 codes cut instead of rounded),
and every bar must fail. The last line counts.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import tokenizers

PROSE = pathlib.Path(__file__).resolve().parents[2] / "pebble" / "tasks" / "prose.jsonl"
SEQUENCES, TOKENS = 4, 80
# A tenth above the figure measured when the recipe was written.
BARS = {"mixed": 0.0080, "mixed-nvfp4-head": 0.0085, "w4a16": 0.0018, "w4a4": 0.0018,
        "experts-only": 0.0010, "fp8": 0.0078, "w4a4-fp8-head": 0.0020, "lab-fp8-embed": 0.0048}



def sequences(model):
    """Token ids of the held-out prose."""
    tokenizer = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))
    texts = [json.loads(line)["text"] for line in PROSE.read_text().splitlines()]
    ids = tokenizer.encode("\n\n".join(texts)).ids
    return [ids[at:at + TOKENS] for at in range(0, SEQUENCES * TOKENS, TOKENS)]


def cut_fp8_codes(folder):
    """Clears the last bit of every 8-bit weight: rounding towards zero, at half the precision."""
    for path in folder.glob("*.safetensors"):
        data = bytearray(path.read_bytes())
        size = int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8:8 + size]).items():
            if name != "__metadata__" and entry["dtype"] == "F8_E4M3" and name.endswith(".weight"):
                begin, end = (8 + size + at for at in entry["data_offsets"])
                data[begin:end] = bytes(code & 0xFE for code in data[begin:end])
        path.write_bytes(data)


class RecipeQuality:
    def __init__(self, options, work):
        self.options, self.work = options, work
        self.ids = work / "ids.json"
        self.ids.write_text(json.dumps({"ids": sequences(options.model)}))

    def run(self, *words):
        done = subprocess.run([self.options.nibble, *map(str, words)], capture_output=True,
                              text=True, timeout=600, check=False)
        assert done.returncode == 0, (words, done.stderr[-500:])
        return done.stdout

    def divergence(self, recipe):
        folder = self.work / recipe
        self.run("quantize", self.options.model, folder, "--recipe", recipe, "--no-progress",
                 "--algorithm", "amax" if self.options.planted else "search")
        if self.options.planted:
            cut_fp8_codes(folder)
        return json.loads(self.run("score", folder, "--ids", self.ids, "--reference",
                                   self.options.model, "--activations", "bf16", "--json"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nibble", required=True)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--planted", action="store_true")
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as work:
        quality = RecipeQuality(options, pathlib.Path(work))
        for recipe, bar in BARS.items():
            found = quality.divergence(recipe)["kl"]["mean"]
            good = (found > bar) if options.planted else (found <= bar)
            failed += not good
            print(f"{'ok  ' if good else 'FAIL'} {recipe}: mean KL {found:.5f}, bar {bar:.5f}")
    print(f"{len(BARS) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
