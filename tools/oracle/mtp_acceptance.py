#!/usr/bin/env python3
"""The drafts of Pebble's MTP layer over its own greedy text, by transformers and mtp_layer.py.

  mtp_acceptance.py            writes tests/golden/mtp_pebble.json
  mtp_acceptance.py --check    computes again and compares with the file (./test --full)

Texts begin as held-out prose and go on greedily. At each place of the continuation three tokens are
drafted by recurrence; draft n is right if it and those before it are what the text goes on with.
"""

import argparse
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import Qwen3_5MoeForConditionalGeneration

from mtp_layer import MtpLayer

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEBBLE = ROOT / "pebble" / "model"
GOLDEN = ROOT / "tests" / "golden" / "mtp_pebble.json"
TEXTS, PROMPT, SAID, STEPS = 6, 40, 72, 3


def prompts():
    tokenizer = Tokenizer.from_file(str(PEBBLE / "tokenizer.json"))
    lines = (ROOT / "pebble" / "tasks" / "prose.jsonl").read_text().splitlines()
    found = [tokenizer.encode(json.loads(line)["text"]).ids for line in lines]
    return [ids[:PROMPT] for ids in found if len(ids) > PROMPT][:TEXTS]


def evaluate():
    model = Qwen3_5MoeForConditionalGeneration.from_pretrained(PEBBLE, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None
    tensors = {}
    for path in sorted(PEBBLE.glob("*.safetensors")):
        tensors |= load_file(path)
    layer = MtpLayer(tensors, model.config.text_config.to_dict())
    table = model.get_input_embeddings().weight.double()
    head = model.get_output_embeddings().weight.double()
    texts = []
    with torch.no_grad():
        for prompt in prompts():
            ids = torch.tensor([prompt])
            ids = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=SAID,
                                 do_sample=False)[0].tolist()
            hidden = model.model(input_ids=torch.tensor([ids]), use_cache=False)
            hidden = hidden.last_hidden_state[0].double()
            drafts = []
            for place in range(PROMPT, len(ids) - STEPS):
                axes = [list(range(place + 1))] * 3
                rows = layer.draft(table, head, hidden[:place], ids[: place + 1], axes, STEPS)
                drafts.append(rows.argmax(-1).tolist())
            texts.append(dict(ids=ids, drafts=drafts))
            print(f"{len(texts)} of {TEXTS}", flush=True)
    return dict(prompt=PROMPT, steps=STEPS, texts=texts, right=right_of(texts))


def right_of(texts):
    """Right drafts by position, and the places."""
    right = [0] * STEPS
    places = 0
    for text in texts:
        for i, drafts in enumerate(text["drafts"]):
            places += 1
            following = text["ids"][PROMPT + i + 1:]
            for n in range(STEPS):
                if drafts[n] != following[n]:
                    break
                right[n] += 1
    return dict(by_position=right, places=places)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    torch.set_num_threads(1)
    found = evaluate()
    print(found["right"])
    if not check:
        GOLDEN.write_text(json.dumps(found) + "\n")
        return 0
    same = json.loads(GOLDEN.read_text()) == found
    print("the same" if same else "FAIL: not what the file says")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
