"""The results of compressed-tensors for given tensors, as one safetensors file per seed.

codec_golden.py checks two such files in; codec_test.py makes fresh ones. The reader is
src/testing/codec_goldens.h. Calls the package's own functions, on the CPU; nothing is re-derived.
"""

import torch
from compressed_tensors.compressors.nvfp4.helpers import pack_fp4_to_uint8, unpack_fp4_from_uint8
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import dequantize, fake_quantize, quantize
from compressed_tensors.quantization.utils import (
    calculate_qparams,
    compute_dynamic_scales_and_zp,
    generate_gparam,
)

E4M3 = torch.float8_e4m3fn
NVFP4_WEIGHT = QuantizationArgs(num_bits=4, type="float", strategy="tensor_group", group_size=16,
                                symmetric=True, dynamic=False, scale_dtype=E4M3, zp_dtype=E4M3)
NVFP4_INPUT = QuantizationArgs(num_bits=4, type="float", strategy="tensor_group", group_size=16,
                               symmetric=True, dynamic="local", scale_dtype=E4M3, zp_dtype=E4M3)
FP8_TOKEN = QuantizationArgs(num_bits=8, type="float", strategy="token", symmetric=True,
                             dynamic=True)
FP8_GROUP = QuantizationArgs(num_bits=8, type="float", strategy="group", group_size=128,
                             symmetric=True, dynamic=True)
FP8_TENSOR = QuantizationArgs(num_bits=8, type="float", strategy="tensor", symmetric=True,
                              dynamic=False)
FP8_CHANNEL = QuantizationArgs(num_bits=8, type="float", strategy="channel", symmetric=True,
                               dynamic=False)
FP8_BLOCK = QuantizationArgs(num_bits=8, type="float", strategy="block", block_structure=[128, 128],
                             symmetric=True, dynamic=False)


def awkward(rows, cols, dtype, random, wildness):
    """Gaussian rows whose size grows by powers, with zeros, ties, outliers, -0 and tiny values."""
    x = torch.randn(rows, cols, generator=random)
    x *= torch.logspace(-wildness, wildness, rows, base=10.0)[:, None]
    x[1, :] = 0.0
    x[2, 16:32] = 0.0
    x[3, :16] = torch.tensor([6, 5, 3.5, 2.5, 1.75, 1.25, 0.75, 0.25, -6, -5, -3.5, -2.5, -1.75,
                              -1.25, -0.75, -0.25])  # every tie, under a scale of 1 / G
    x[4, 5] = 1e4 * x[4].abs().max()
    x[5, ::2] *= -0.0
    x[6, :] = 1e-30 * x[6].sign()
    x[7, 3] = 3e38
    return x.to(dtype)


def weight_case(out, name, w):
    """Plain amax/6: global scale, block scales, codes; and the way back."""
    low, high = torch.aminmax(w)
    global_scale = generate_gparam(low, high)
    groups = w.unflatten(-1, (-1, 16))
    scale, _ = calculate_qparams(groups.amin(-1), groups.amax(-1), NVFP4_WEIGHT, global_scale)
    codes = quantize(w, scale, None, NVFP4_WEIGHT, global_scale=global_scale)
    packed = pack_fp4_to_uint8(codes)
    unpacked = unpack_fp4_from_uint8(packed, *w.shape)
    stored = scale.to(E4M3)
    out |= {f"{name}/values": w, f"{name}/global_scale": global_scale, f"{name}/scales": stored,
            f"{name}/packed": packed}
    for dtype, word in ((torch.float32, "f32"), (torch.bfloat16, "bf16")):
        out[f"{name}/decoded_{word}"] = dequantize(
            unpacked, stored.to(torch.bfloat16), args=NVFP4_WEIGHT, global_scale=global_scale,
            dtype=dtype)


def nvfp4_input_case(out, name, x, global_scale):
    scale, zero = compute_dynamic_scales_and_zp(x, NVFP4_INPUT, None, global_scale)
    codes = quantize(x, scale, zero, NVFP4_INPUT, global_scale=global_scale)
    out |= {f"{name}/x": x, f"{name}/global_scale": global_scale, f"{name}/scales": scale.to(E4M3),
            f"{name}/packed": pack_fp4_to_uint8(codes),
            f"{name}/out": fake_quantize(x, scale, zero, NVFP4_INPUT, global_scale)}


def fp8_dynamic_case(out, name, x, args):
    """[1, T, K]: a token is a row only of a 3-D tensor; a 2-D one is taken as a whole."""
    batch = x[None]
    scale, zero = compute_dynamic_scales_and_zp(batch, args, None)
    out |= {f"{name}/x": x, f"{name}/scales": scale.reshape(len(x), -1).contiguous(),
            f"{name}/out": fake_quantize(batch, scale, zero, args)[0]}


def fp8_static_case(out, name, x, scale):
    zero = torch.zeros(1, dtype=E4M3)
    out |= {f"{name}/x": x, f"{name}/scale": scale.float(),
            f"{name}/out": fake_quantize(x, scale, zero, FP8_TENSOR)}


def fp8_weight_case(out, name, codes, scale, args):
    out |= {f"{name}/codes": codes, f"{name}/scale": scale,
            f"{name}/decoded": dequantize(codes, scale, args=args)}


def make(seed, rows, cols):
    random = torch.Generator().manual_seed(seed)
    out = {}
    for dtype, word in ((torch.float32, "f32"), (torch.bfloat16, "bf16")):
        weight_case(out, f"weight/{word}_plain",
                    torch.randn(rows, cols, generator=random).mul(0.02).to(dtype))
        weight_case(out, f"weight/{word}_awkward", awkward(rows, cols, dtype, random, 2)[:7])
        weight_case(out, f"weight/{word}_zero", torch.zeros(2, 32, dtype=dtype))
        x = awkward(rows, cols, dtype, random, 3)
        for number, amax in enumerate((40.0, 3.0, 2688.0, 1e-3)):
            nvfp4_input_case(out, f"nvfp4_input/{word}_{number}", x, torch.tensor([2688.0 / amax]))
        nan = x.clone()
        nan[0, 20] = torch.nan
        nan[4, 0] = torch.inf
        nan[4, 17] = -torch.inf
        nvfp4_input_case(out, f"nvfp4_input/{word}_nan", nan[:5], torch.tensor([67.2]))
        # One value per block, neighbouring BF16 values: amax / 6 falls on ties of E4M3 and
        # beside them.
        near_ties = torch.zeros(8, 256)
        near_ties[:, ::16] = (1 + torch.arange(128) / 128).view(8, 16)
        nvfp4_input_case(out, f"nvfp4_input/{word}_near_ties", near_ties.to(dtype),
                         torch.tensor([67.2]))
        weight_case(out, f"weight/{word}_near_ties", near_ties.to(dtype))
        wide = awkward(rows, 256, dtype, random, 3)
        fp8_dynamic_case(out, f"fp8_token/{word}", wide[:7], FP8_TOKEN)
        fp8_dynamic_case(out, f"fp8_group/{word}", wide[:7], FP8_GROUP)
        fp8_static_case(out, f"fp8_static/{word}", x, torch.tensor([0.013]).to(dtype))
        codes = torch.randint(0, 256, (130, 144), generator=random, dtype=torch.uint8)
        codes[(codes & 127) == 127] = 0
        codes = codes.view(E4M3)
        if dtype == torch.bfloat16:
            scale = torch.rand(2, 2, generator=random).to(dtype)
            fp8_weight_case(out, "fp8_weight/block", codes, scale, FP8_BLOCK)
        few = codes[:8, :64].contiguous()
        channel = torch.rand(8, 1, generator=random).to(dtype)
        fp8_weight_case(out, f"fp8_weight/{word}_channel", few, channel, FP8_CHANNEL)
        fp8_weight_case(out, f"fp8_weight/{word}_tensor", few, channel[:1, 0].contiguous(),
                        FP8_TENSOR)
    form = torch.contiguous_format
    return {name: tensor.clone(memory_format=form) for name, tensor in out.items()}
