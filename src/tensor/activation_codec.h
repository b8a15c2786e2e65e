// Activations as a quantized checkpoint declares them: quantized and dequantized again, one row at
// a time, bit for bit what compressed-tensors 0.20 computes at run time on tensors of the source
// type (`quantization/lifecycle/forward_helpers.py`, `quantization/utils/helpers.py`). With
// SourceType::bf16 the inputs must be BF16 values and the outputs are.
// A block with a NaN becomes NaN throughout; infinities saturate. -0 becomes 0.
#pragma once

#include <cstdint>
#include <string_view>

#include "tensor/nvfp4.h"
#include "tensor/quant_scheme.h"

namespace nibble {

/// The divisor form of a file's input scale: G as it is, or 1/g as the official converter has it.
GlobalScale activation_global_scale(GlobalScale file_scale);

/// "amax", "four-over-six".
std::string_view input_scales_name(InputScales scales);

struct Nvfp4Inputs {
  GlobalScale global;  // the file's
  SourceType source = SourceType::f32;
  InputScales scales = InputScales::amax;
};

/// NVFP4, "dynamic": "local": scale = e4m3(G * (amax_16 / 6)), zero -> 0.125; code =
/// e2m1(x / (scale / G)). cols a multiple of 16; codes [cols / 2], scales [cols / 16]. Errors of
/// four_over_six are code * (scale / G) - x, squared in F32 and added as pairs of adjacent columns,
/// these with the pair 8 columns on, and the four sums as (0 + 1) + (2 + 3).
void encode_nvfp4_activations(const float* x, const Nvfp4Inputs& inputs, int64_t cols,
                              uint8_t* codes, uint8_t* scales);
/// The same and back. `out` may be `x`.
void round_nvfp4_activations(const float* x, const Nvfp4Inputs& inputs, int64_t cols, float* out);

/// FP8 with a scale per run of `group` columns (the row: cols; or 128) computed here: amax / 448,
/// zero -> the source type's epsilon. `out` may be `x`.
void round_fp8_dynamic(const float* x, SourceType source, int64_t group, int64_t cols, float* out);
/// The scale of one run, from its largest magnitude.
float fp8_dynamic_scale(float amax, SourceType source);

/// FP8 under the file's one static scale. `out` may be `x`.
void round_fp8_static(const float* x, float scale, SourceType source, int64_t cols, float* out);

}  // namespace nibble
