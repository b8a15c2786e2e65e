#!/usr/bin/env python3
"""Images and videos through transformers in F32, for tests/golden/vision.

  vision_golden.py            writes every case
  vision_golden.py --check    computes again and compares with the files (./test --full)

Case "tiny" is a Hugging Face folder; case "pebble" is of pebble/model. Both have expected.json:
prompts of ids, the grids of their media in order and whether each is a video, and the seed of each
one's pixels (levels() below); rows.f32: what the tower makes of all media, [rows, hidden];
logits.f32: of the last "logit_rows" rows of all prompts, [rows, V] F32, concatenated. A video of t
frames is t runs of placeholder tokens with text between them.
"""

import json
import pathlib
import shutil
import sys

import numpy
import torch
from safetensors.torch import save_file
from transformers import Qwen3_5MoeConfig, Qwen3_5MoeForConditionalGeneration

import model_cases as cases
import model_golden

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
ROOT = REPOSITORY / "tests" / "golden" / "vision"
L, F = cases.LINEAR, cases.FULL
IMAGE, VIDEO = "image", "video"

# Prompts: text lengths and media (kind, grid in patches), in turn.
PROMPTS = {
    "tiny": [[5, (IMAGE, (1, 6, 10)), 3, (IMAGE, (1, 2, 2)), 1, (IMAGE, (1, 4, 18)), 40],
             [2, (VIDEO, (3, 4, 6)), 9, (IMAGE, (1, 2, 12)), 4]],
    "pebble": [[7, (IMAGE, (1, 4, 6)), 20, (IMAGE, (1, 8, 6)), 11],
               [3, (VIDEO, (2, 4, 8)), 6]],
}
NAMES = list(PROMPTS)
LOGIT_ROWS = {"tiny": 1000, "pebble": 12}


def levels(seed, count):
    """Pixels as 8-bit levels: splitmix64 of the place, its highest byte."""
    x = numpy.arange(count, dtype=numpy.uint64) + numpy.uint64(seed << 32)
    with numpy.errstate(over="ignore"):
        x = x + numpy.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        x = x ^ (x >> numpy.uint64(31))
    return (x >> numpy.uint64(56)).astype(numpy.uint8)


def pixels(seed, patches, numbers):
    values = levels(seed, patches * numbers).astype(numpy.float32) / numpy.float32(127.5)
    return torch.from_numpy(values - numpy.float32(1)).reshape(patches, numbers)


def tiny_model():
    text = cases.hybrid(101, 48, [L, F, L, F], (6, 2), 16, (2, 4, 8, 12),
                        cases.rope([2, 1, 1]), num_experts=6, num_experts_per_tok=3,
                        moe_intermediate_size=20, shared_expert_intermediate_size=28)
    vision = dict(depth=3, hidden_size=36, intermediate_size=52, num_heads=3, patch_size=4,
                  temporal_patch_size=2, spatial_merge_size=2, num_position_embeddings=25,
                  out_hidden_size=48)
    config = Qwen3_5MoeConfig(text_config=dict(text, tie_word_embeddings=False),
                              vision_config=vision, tie_word_embeddings=False, image_token_id=90,
                              video_token_id=91, vision_start_token_id=92, vision_end_token_id=93)
    model = cases.fill(Qwen3_5MoeForConditionalGeneration(config), 3, cases.bf16)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():  # scores that matter, biases that show
        for name, parameter in model.model.visual.named_parameters():
            if name.endswith("bias"):
                drawn = 0.3 * torch.randn(parameter.shape, generator=generator)
            elif name.endswith("qkv.weight"):
                drawn = parameter * 2
            else:
                continue
            parameter.copy_(drawn.to(torch.bfloat16).float())
    return model


def load(name):
    folder = REPOSITORY / "pebble" / "model" if name == "pebble" else ROOT / name
    return Qwen3_5MoeForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()


def prompt_of(parts, config, seed):
    """Ids, token types, and the media as (kind, grid, seed)."""
    merge = config.vision_config.spatial_merge_size
    vocabulary = min(config.image_token_id, config.video_token_id)
    generator = torch.Generator().manual_seed(seed)
    ids, types, media = [], [], []

    def add_text(count):
        ids.extend(torch.randint(0, vocabulary, (count,), generator=generator).tolist())
        types.extend([0] * count)

    for part in parts:
        if isinstance(part, int):
            add_text(part)
            continue
        kind, (t, h, w) = part
        rows = h * w // merge**2
        for frame in range(t):
            if frame > 0:
                add_text(3)
            ids.extend([config.image_token_id if kind == IMAGE else config.video_token_id] * rows)
            types.extend([1 if kind == IMAGE else 2] * rows)
        media.append(dict(kind=kind, grid=[t, h, w], seed=100 * seed + len(media)))
    return ids, types, media


def tensors_of(media, kind, numbers):
    chosen = [m for m in media if m["kind"] == kind]
    if not chosen:
        return None, None
    values = [pixels(m["seed"], int(numpy.prod(m["grid"])), numbers) for m in chosen]
    return torch.cat(values), torch.tensor([m["grid"] for m in chosen])


def compute(model, name):
    vision = model.config.vision_config
    numbers = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
    golden, rows, logits = [], [], []
    for seed, parts in enumerate(PROMPTS[name], start=1):
        ids, types, media = prompt_of(parts, model.config, seed)
        inputs = dict(input_ids=torch.tensor([ids]), mm_token_type_ids=torch.tensor([types]))
        inputs["pixel_values"], inputs["image_grid_thw"] = tensors_of(media, IMAGE, numbers)
        inputs["pixel_values_videos"], inputs["video_grid_thw"] = tensors_of(media, VIDEO, numbers)
        with torch.no_grad():
            for one in media:
                values = pixels(one["seed"], int(numpy.prod(one["grid"])), numbers)
                made = model.model.visual(values, grid_thw=torch.tensor([one["grid"]]))
                rows.append(made.pooler_output)
            last = min(LOGIT_ROWS[name], len(ids))
            logits.append(model(**inputs, use_cache=False).logits[0, -last:])
        golden.append(dict(ids=ids, media=media, logit_rows=last))
    return golden, torch.cat(rows).numpy(), torch.cat(logits).numpy()


def write(name):
    folder = ROOT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if name == "tiny":
        model = tiny_model()
        save_file(model_golden.stored(model, cases.bf16), folder / "model.safetensors",
                  metadata={"format": "pt"})
        model.config.save_pretrained(folder)
        model_golden.tidy_config(folder, model)
    model = load(name)
    golden, rows, logits = compute(model, name)
    (folder / "expected.json").write_text(json.dumps(golden) + "\n")
    rows.astype("<f4").tofile(folder / "rows.f32")
    logits.astype("<f4").tofile(folder / "logits.f32")
    for path in folder.iterdir():
        path.chmod(0o644)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{name}: {size} bytes, rows std {rows.std():.3f}, logits std {logits.std():.3f}")


def check(name):
    golden, rows, logits = compute(load(name), name)
    folder = ROOT / name
    errors = [model_golden.difference(found, folder / file)
              for found, file in ((rows, "rows.f32"), (logits, "logits.f32"))]
    same = golden == json.loads((folder / "expected.json").read_text())
    fine = same and max(errors) < 1e-5
    print(f"{'ok  ' if fine else 'FAIL'} {name}: rows differ by {errors[0]:.2e}, logits by "
          f"{errors[1]:.2e}, prompts same: {same}")
    return fine


if __name__ == "__main__":
    sys.exit(cases.run_goldens(__doc__, NAMES, write, check))
