#!/usr/bin/env python3
"""Tiny checkpoints and what transformers computes with them, for tests/golden/model.

  model_golden.py            writes every case
  model_golden.py --check    computes again and compares with the files (./test --full)

A case is a Hugging Face folder plus expected.json (ids per sequence, greedy continuation, positions
where they are not 0, 1, 2, ...) and logits.f32 (all sequences' logits, [T, V] F32, concatenated).
Some have logits_kv_FORMAT.f32 too: the same with keys and values as pages of that format keep them.
"""

import contextlib
import json
import pathlib
import shutil
import sys

import numpy
import torch
from safetensors.torch import save_file
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import kv_pages
import model_cases as cases

ROOT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "model"
GREEDY = 40
LENGTHS = (90, 41)
L, F = cases.LINEAR, cases.FULL


def moe_text(**more):
    return cases.hybrid(101, 48, [L, L, F, L], (6, 2), 16, (2, 4, 8, 12), cases.rope([2, 1, 1]),
                        num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20,
                        shared_expert_intermediate_size=28, **more)


def build(name):
    """Model, how its tensors are stored, and the layout of its experts."""
    if name == "moe-fused":
        return cases.moe_model(moe_text()), cases.bf16, "fused"
    if name == "moe-separate":
        text = cases.hybrid(97, 40, [L, F, L, F, L], (4, 4), 12, (1, 3, 10, 6),
                            cases.rope([1, 1, 1]), num_experts=5, num_experts_per_tok=2,
                            moe_intermediate_size=12, shared_expert_intermediate_size=20)
        return cases.moe_model(text), lambda n: torch.bfloat16, "separate"
    if name == "dense-tied":
        text = cases.hybrid(113, 36, [L, L, L, F], (4, 2), 20, (3, 3, 6, 10),
                            cases.rope([2, 2, 1]), intermediate_size=52)
        return cases.dense_model(text, tied=True), cases.bf16, "separate"
    if name == "dense-yarn":
        text = cases.hybrid(89, 44, [F, L, F], (6, 3), 24, (2, 4, 12, 8),
                            cases.rope([3, 2, 1], **cases.YARN), intermediate_size=40)
        return cases.dense_model(text), lambda n: torch.float16, "separate"
    if name == "dense-positions":
        text = cases.hybrid(103, 32, [L, F, F], (4, 2), 24, (2, 2, 8, 8),
                            cases.rope([2, 2, 2]), intermediate_size=36)
        return cases.dense_model(text), lambda n: torch.float32, "separate"
    if name == "dense-text-only":
        text = cases.hybrid(61, 28, [L, F], (2, 1), 16, (2, 2, 6, 4), cases.rope([2, 1, 1]),
                            intermediate_size=20)
        return cases.text_only_model(text), cases.bf16, "separate"
    plain = dict(vocab_size=107, hidden_size=40, num_hidden_layers=3, num_attention_heads=6,
                 num_key_value_heads=2, head_dim=12, num_experts=7, num_experts_per_tok=3,
                 moe_intermediate_size=20, intermediate_size=24)
    if name == "plain-moe":
        rope = dict(rope_type="default", rope_theta=1e5)
        return (cases.plain_model(norm_topk_prob=True, rope_parameters=rope, **plain),
                cases.bf16, "separate")
    if name == "plain-moe-yarn":
        rope = dict(cases.YARN, rope_theta=1e4, beta_fast=16.0, truncate=False, mscale=1.5,
                    mscale_all_dim=0.7)
        return (cases.plain_model(norm_topk_prob=False, tie_word_embeddings=True,
                                  rope_parameters=rope, **plain), cases.bf16, "fused")
    raise ValueError(name)


NAMES = ["moe-fused", "moe-separate", "dense-tied", "dense-yarn", "dense-positions",
         "dense-text-only", "plain-moe", "plain-moe-yarn"]
KV_CASES = {"fp8": ("dense-positions", "dense-yarn", "moe-fused", "plain-moe"),
            "turboquant_4bit_nc": ("moe-fused", "dense-text-only"),
            "nvfp4": ("moe-fused", "dense-text-only")}
SHARDED = {"moe-separate": "40KB"}


def image_positions(length):
    """Positions of text, a 3 x 4 grid of image tokens, text again."""
    before, rows, columns = 11, 3, 4
    axes = [[i] * 3 for i in range(before)]
    axes += [[before, before + r, before + c] for r in range(rows) for c in range(columns)]
    start = before + max(rows, columns)
    axes += [[start + i] * 3 for i in range(length - len(axes))]
    return [[a[axis] for a in axes] for axis in range(3)]


def text_config(model):
    return getattr(model.config, "text_config", model.config)


@contextlib.contextmanager
def kv_in(model, kv_format):
    """Attention meets keys (after norm and rotation) and values as pages of a format keep them."""
    keys, values = kv_pages.FORMATS[kv_format]
    name = text_config(model)._attn_implementation
    attend = ALL_ATTENTION_FUNCTIONS[name]

    def attend_rounded(module, query, key, value, *more, **options):
        return attend(module, query, keys(key), values(value), *more, **options)

    ALL_ATTENTION_FUNCTIONS[name] = attend_rounded
    try:
        yield
    finally:
        ALL_ATTENTION_FUNCTIONS[name] = attend


def expected(model, name):
    vocab = text_config(model).vocab_size
    ids = cases.sequences(vocab, LENGTHS, seed=len(name))
    golden = dict(ids=ids)
    arguments = [{} for _ in ids]
    if name == "dense-positions":
        golden["positions"] = [image_positions(len(one)) for one in ids]
        arguments = [dict(position_ids=torch.tensor(p)[:, None]) for p in golden["positions"]]
    with torch.no_grad():
        logits = [model(input_ids=torch.tensor([one]), use_cache=False, **more).logits[0]
                  for one, more in zip(ids, arguments)]
        if "positions" not in golden:
            golden.update(greedy(model, ids[0]))
    return golden, torch.cat(logits).float().numpy()


def greedy(model, ids):
    model.generation_config.eos_token_id = None  # run to the full length
    prompt = torch.tensor([ids])
    out = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=GREEDY,
                         do_sample=False)[0]
    logits = model(input_ids=out[None, :-1], use_cache=False).logits[0, len(ids) - 1:]
    top = logits.topk(2).values
    margin = float(((top[:, 0] - top[:, 1]) / logits.std()).min())
    return dict(greedy=out[len(ids):].tolist(), greedy_margin=round(margin, 6))


def kv_formats_of(name):
    return [kv_format for kv_format, names in KV_CASES.items() if name in names]


def expected_kv(model, name, kv_format):
    with kv_in(model, kv_format):
        return expected(model, name)[1]


def write_kv(model, name, folder):
    for kv_format in kv_formats_of(name):
        logits = expected_kv(model, name, kv_format)
        logits.astype("<f4").tofile(folder / f"logits_kv_{kv_format}.f32")


def stored(model, dtype_of):
    """The tensors of a file. A tied head is not stored."""
    tied = text_config(model).tie_word_embeddings
    return {name: tensor.to(dtype_of(name)).contiguous()
            for name, tensor in model.state_dict().items()
            if not (tied and name == "lm_head.weight")}


def save_fused(model, folder, dtype_of):
    """The released layout: experts fused, one file."""
    tensors = {name: tensor for name, tensor in stored(model, dtype_of).items()
               if "visual" not in name}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    model.config.save_pretrained(folder)


def save_separate(model, folder, dtype_of, shard):
    """transformers' own writer: one tensor per expert."""
    model.save_pretrained(folder, state_dict=stored(model, dtype_of), max_shard_size=shard)
    (folder / "generation_config.json").unlink(missing_ok=True)


def tidy_config(folder, model):
    """Drops the paths and counts that would change from run to run."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["architectures"] = [type(model).__name__]
    path.write_text(json.dumps(config, indent=1) + "\n")


def draw_clear(name):
    """A model whose greedy continuation has no near-ties, so that it can be compared exactly."""
    model, dtype_of, layout = build(name)
    for seed in range(100):
        cases.fill(model, seed, dtype_of)
        golden, logits = expected(model, name)
        lively = len(set(golden.get("greedy", range(9)))) > 8
        if lively and golden.get("greedy_margin", 1.0) > 0.004:
            return model, dtype_of, layout, golden, logits
    raise RuntimeError(f"{name}: every seed has near-ties")


def write(name):
    model, dtype_of, layout, golden, logits = draw_clear(name)
    folder = ROOT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if layout == "fused":
        save_fused(model, folder, dtype_of)
    else:
        save_separate(model, folder, dtype_of, SHARDED.get(name, "1GB"))
    tidy_config(folder, model)
    (folder / "expected.json").write_text(json.dumps(golden) + "\n")
    logits.astype("<f4").tofile(folder / "logits.f32")
    write_kv(model, name, folder)
    for path in folder.iterdir():
        path.chmod(0o644)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{name}: {size} bytes, greedy margin {golden.get('greedy_margin')}, "
          f"{len(set(golden.get('greedy', [])))} tokens, logits std {logits.std():.3f}")


def check(name):
    """The stored case, loaded by transformers from its files, still gives the stored numbers."""
    folder = ROOT / name
    built, dtype_of, _ = build(name)
    model = type(built).from_pretrained(folder, dtype=torch.float32).eval()
    golden, logits = expected(model, name)
    error = difference(logits, folder / "logits.f32")
    same = golden.get("greedy") == json.loads((folder / "expected.json").read_text()).get("greedy")
    fine = error < 1e-4 and same
    kv_errors = []
    for kv_format in kv_formats_of(name):
        kept = expected_kv(model, name, kv_format)
        kv_errors.append(difference(kept, folder / f"logits_kv_{kv_format}.f32"))
        fine = fine and kv_errors[-1] < 1e-4 and difference(kept, folder / "logits.f32") > 1e-3
    print(f"{'ok  ' if fine else 'FAIL'} {name}: logits differ by {error:.2e}, greedy same: {same}"
          + "".join(f", with pages in {kv_format} by {error:.2e}"
                    for kv_format, error in zip(kv_formats_of(name), kv_errors)))
    return fine


def difference(logits, path):
    """Root mean square, relative to the deviation of what is stored."""
    stored = numpy.fromfile(path, "<f4").reshape(logits.shape)
    return float(numpy.sqrt(((logits - stored) ** 2).mean()) / stored.std())


if __name__ == "__main__":
    sys.exit(cases.run_goldens(__doc__, NAMES, write, check))
