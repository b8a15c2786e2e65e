#!/usr/bin/env python3
"""How much of a data-free row is luck: channel_orders.py NIBBLE WORK > table.

A model whose channels stand in another order is the same model, but other weights share a block of
16. Pebble in several orders is quantized and scored as in quality.py; the spread over orders is the
luck of one rounding, which the spread over texts does not show. Needs tools/requirements-full.txt.
"""

import json
import pathlib
import shutil
import sys

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import held_out
from quality import RECIPES, run, scored

ORDERS = 5
EVERY = 3  # one chat in three; all of the prose
RUNS = {"w4a16": ["amax", "four-over-six", "search"],
        "mixed-nvfp4-head": ["amax", "four-over-six", "search"],
        "experts-only": ["amax", "four-over-six", "search"]}
READS = ("q_proj", "k_proj", "v_proj", "in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a",
         "mlp.gate", "shared_expert_gate", "shared_expert.gate_proj", "shared_expert.up_proj",
         "embed_tokens", "lm_head")  # [.., hidden]
WRITES = ("o_proj", "out_proj", "shared_expert.down_proj")  # [hidden, ..]
NORMS = ("input_layernorm", "post_attention_layernorm", "language_model.norm")


def reorder(name, tensor, hidden, random):
    """The tensor of the model whose residual stream has the order `hidden`; experts' inner channels
    get an order of their own, drawn by expert."""
    module = name.removesuffix(".weight")
    if name.startswith("mtp.") or ".visual." in name:
        return tensor
    if module.endswith("experts.gate_up_proj"):
        width = tensor.shape[1] // 2
        out = [torch.cat((one[:width][inner], one[width:][inner]))[:, hidden]
               for one, inner in zip(tensor, random(module.removesuffix("gate_up_proj"), width))]
        return torch.stack(out)
    if module.endswith("experts.down_proj"):
        inner = random(module.removesuffix("down_proj"), tensor.shape[2])
        return torch.stack([one[hidden][:, order] for one, order in zip(tensor, inner)])
    if module.endswith(NORMS):
        return tensor[hidden]
    if module.endswith(WRITES):
        return tensor[hidden]
    return tensor[:, hidden] if module.endswith(READS) else tensor


def write(folder, seed):
    config = json.loads((held_out.MODEL / "config.json").read_text())["text_config"]
    hidden = torch.randperm(config["hidden_size"], generator=torch.Generator().manual_seed(seed))

    def random(experts, width):  # the same for both tensors of a layer
        layer = int(experts.split("layers.")[1].split(".")[0])
        generator = torch.Generator().manual_seed(1000 * seed + layer)
        return [torch.randperm(width, generator=generator) for _ in range(config["num_experts"])]

    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(held_out.MODEL, folder)
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            tensors = {name: reorder(name, file.get_tensor(name), hidden, random).contiguous()
                       for name in file.keys()}
        save_file(tensors, path, metadata={"format": "pt"})


def measure(nibble, work, items):
    """(recipe, algorithm) -> KL of chats and of prose, [orders, 2]."""
    reference, found = scored(nibble, work, held_out.MODEL, "f32"), {}
    for order in range(ORDERS):
        write(work / "model", order)
        same = held_out.quality(items, reference, scored(nibble, work, work / "model", "f32"))
        assert max(same[0].mean(), same[1].mean()) < 1e-6, "another model, not another order"
        for recipe, algorithms in RUNS.items():
            for algorithm in algorithms:
                shutil.rmtree(work / "output", ignore_errors=True)
                run(nibble, "quantize", work / "model", work / "output", "--recipe", recipe,
                    "--algorithm", algorithm, "--no-progress")
                logits = scored(nibble, work, work / "output", RECIPES[recipe])
                chat, prose, _ = held_out.quality(items, reference, logits)
                found.setdefault((recipe, algorithm), []).append([chat.mean(), prose.mean()])
    return {key: np.array(rows) for key, rows in found.items()}


def main():
    nibble, work = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    work.mkdir(parents=True, exist_ok=True)
    items = held_out.held_out_items()
    items = [one for i, one in enumerate(items) if one[1] is None or i % EVERY == 0]
    (work / "ids.json").write_text(json.dumps({"ids": [ids for ids, _ in items]}))
    found = measure(nibble, work, items)
    print("| recipe | algorithm | KL of chats | better than amax | KL of prose | better than amax |"
          "\n|---|---|---|---|---|---|")
    for (recipe, algorithm), rows in found.items():
        gain = 100 * (1 - rows / found[recipe, "amax"])
        cells = []
        for kind in (0, 1):
            cells.append(f"{rows[:, kind].mean():.2e} ± {rows[:, kind].std(ddof=1):.0e}")
            cells.append(f"{gain[:, kind].mean():.0f} ± {gain[:, kind].std(ddof=1):.0f} %"
                         if algorithm != "amax" else "")
        print(f"| {recipe} | {algorithm} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
