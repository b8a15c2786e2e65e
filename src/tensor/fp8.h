// E4M3 weights with one scale per tensor, per row or per 128 x 128 tile, and plain float rows:
// decoding to F32. The NVFP4 codec is in nvfp4.h; E4M3 itself in float_formats.h.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "tensor/quant_scheme.h"
#include "tensor/tensor.h"

namespace nibble {

/// Value of each E4M3 code; 0x7F and 0xFF are NaN.
const std::array<float, 256>& e4m3_values();

/// out[i] = value(codes[i]) * scale, in F32. For fp8_tensor and fp8_channel.
void decode_fp8_row(const uint8_t* codes, float scale, int64_t cols, float* out);

/// One row of a tiled matrix: scales [ceil(cols / 128)] of the row's band of tiles.
void decode_fp8_block_row(const uint8_t* codes, const float* scales, int64_t cols, float* out);

/// One scale per matrix for `amax`: amax / 448; 1 for a zero or non-finite amax.
float fp8_scale(float amax);

/// codes[i] = e4m3(x[i] / scale), saturated to +-448.
void encode_fp8_row(const float* x, float scale, int64_t cols, uint8_t* codes);

/// True for the types decode_plain reads.
bool is_plain_float(DType type);

/// `count` elements of F32, BF16, F16 or F64 (rounded) -> F32. Any other type is a CHECK.
void decode_plain(const std::byte* data, DType type, int64_t count, float* out);

}  // namespace nibble
