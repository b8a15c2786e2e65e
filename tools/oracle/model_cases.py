"""The tiny models of tests/golden/model: their configurations, how their weights are drawn, and the
command line of the scripts that write them.

Not a checkpoint writer: model_golden.py and model_quantized_golden.py are. Weights are drawn so
that every mechanism shows in the logits: spread router logits, decays between 0.3 and 0.999, norm
weights off their neutral value. Parameters are rounded to the file's type and kept in F32; the
module itself is never cast, because that would round the rotary frequencies as well.
"""

import argparse
import math

import torch
from transformers import (Qwen3_5Config, Qwen3_5ForCausalLM, Qwen3_5ForConditionalGeneration,
                          Qwen3_5MoeConfig, Qwen3_5MoeForConditionalGeneration, Qwen3_5TextConfig,
                          Qwen3MoeConfig, Qwen3MoeForCausalLM)

VISION = dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, patch_size=4,
              num_position_embeddings=16, out_hidden_size=16)
LINEAR, FULL = "linear_attention", "full_attention"
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)


def rope(section, theta=1e4, rotary=0.5, **more):
    return dict(dict(rope_type="default", rope_theta=theta, partial_rotary_factor=rotary,
                     mrope_interleaved=True, mrope_section=section), **more)


def hybrid(vocab, hidden, layers, heads, head_dim, delta, rope_parameters, **more):
    """Text settings of a model with delta-net layers. heads = (q, kv); delta = (k_heads, v_heads,
    k_dim, v_dim)."""
    return dict(vocab_size=vocab, hidden_size=hidden, num_hidden_layers=len(layers),
                layer_types=layers, num_attention_heads=heads[0], num_key_value_heads=heads[1],
                head_dim=head_dim, linear_num_key_heads=delta[0], linear_num_value_heads=delta[1],
                linear_key_head_dim=delta[2], linear_value_head_dim=delta[3],
                rope_parameters=rope_parameters, max_position_embeddings=4096, eos_token_id=1,
                **more)


def moe_model(text, tied=False):
    config = Qwen3_5MoeConfig(text_config=dict(text, tie_word_embeddings=tied),
                              vision_config=VISION, tie_word_embeddings=tied)
    return Qwen3_5MoeForConditionalGeneration(config)


def dense_model(text, tied=False):
    config = Qwen3_5Config(text_config=dict(text, tie_word_embeddings=tied),
                           vision_config=VISION, tie_word_embeddings=tied)
    return Qwen3_5ForConditionalGeneration(config)


def text_only_model(text):
    """The class without a vision tower: a flat config, names under "model."."""
    return Qwen3_5ForCausalLM(Qwen3_5TextConfig(tie_word_embeddings=False, **text))


def plain_model(**settings):
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(max_position_embeddings=4096, eos_token_id=1,
                                              **settings))


def draw(name, parameter, generator, tied):
    """New values of one parameter, by its role."""
    normal = torch.randn(parameter.shape, generator=generator)
    uniform = torch.rand(parameter.shape, generator=generator)
    if name.endswith("A_log"):
        return torch.log(0.3 + 6.0 * uniform)
    if name.endswith("dt_bias"):
        step = torch.exp(math.log(2e-3) + uniform * (math.log(0.2) - math.log(2e-3)))
        return torch.log(torch.expm1(step))
    if "norm" in name and parameter.dim() == 1:
        neutral = 1.0 if float(parameter.mean()) > 0.5 else 0.0
        return neutral + 0.1 * normal
    if "conv1d" in name:
        return 0.5 * normal
    if "embed_tokens" in name:  # a large tied embedding would only ever repeat its input
        return 0.15 * normal if tied else normal
    gain = 3.0 if "mlp.gate.weight" in name else 2.0 if "lm_head" in name else 1.2
    return gain * normal / math.sqrt(parameter.shape[-1])


def fill(model, seed, dtype_of):
    """Draws every parameter, rounded to dtype_of(name) and kept in F32."""
    generator = torch.Generator().manual_seed(seed)
    tied = model.config.tie_word_embeddings
    model.eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(draw(name, parameter, generator, tied).to(dtype_of(name)).float())
    return model


def keep_f32(name):
    """The released Qwen3.5 files keep these two in F32."""
    return name.endswith("A_log") or name.endswith("linear_attn.norm.weight")


def bf16(name):
    return torch.float32 if keep_f32(name) else torch.bfloat16


def sequences(vocab, lengths, seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, vocab, (length,), generator=generator).tolist() for length in lengths]


def run_goldens(description, names, write, check):
    """The command line of a script that writes goldens by name, or with --check compares them."""
    parser = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("names", nargs="*", default=names)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if not options.check:
        for name in options.names:
            write(name)
        return 0
    results = [check(name) for name in options.names]
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1
