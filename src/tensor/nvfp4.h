// The NVFP4 codec: rows of E2M1 codes, one E4M3 scale per 16 columns, one FP32 global scale.
// Scalar truth on plain arrays. The search for better scales is the quantizer's, speed a backend's.
// Bytes: column 2j is the low nibble of byte j. Real value = code * global.apply(scale).
#pragma once

#include <cstdint>

#include "tensor/quant_scheme.h"

namespace nibble {

inline constexpr float kNvfp4AmaxOverGlobal = 2688.0F;  // 448 * 6: largest scale times largest code

/// Element type of the tensor a Python tool would have been given. Those tools round intermediate
/// results to it, so byte parity with their output depends on it; quality does not.
enum class SourceType : uint8_t { f32, bf16 };

/// Global scale of a matrix, or of a fused group of matrices, whose largest magnitude is `amax`.
/// divide: 2688 * (1 / amax), each step rounded to the source type, as compressed-tensors'
/// generate_gparam does; multiply: amax / 2688, as ModelOpt does. What would be zero, NaN or
/// infinite is 1.
GlobalScale nvfp4_global_scale(float amax, GlobalScale::Direction direction, SourceType source);

/// E4M3 code of the plain choice amax/6 for a block whose largest magnitude is `amax`, saturated to
/// 448. divide: e4m3(G * (amax / 6)), where a zero becomes 0.125 (compressed-tensors);
/// multiply: e4m3(amax / (6 * g)), at least 2^-9, where a zero block becomes 1 (ModelOpt).
/// A NaN gives 0x7F.
uint8_t nvfp4_amax_scale(float amax, GlobalScale global, SourceType source);

/// 16 values -> 8 bytes: round to nearest even of x / global.apply(scale), saturated to +-6. A
/// negative value that rounds to zero keeps its sign (0x8); -0 itself becomes 0. Under a scale of
/// zero all codes are 0. No NaN may come here.
void encode_nvfp4_block(const float* x, uint8_t scale, GlobalScale global, uint8_t* codes);

/// A row of `cols` (a multiple of 16) values under given block scales -> cols / 2 bytes.
void encode_nvfp4_row(const float* x, const uint8_t* scales, GlobalScale global, int64_t cols,
                      uint8_t* codes);

/// Plain amax/6 scales of a row: cols / 16 codes.
void nvfp4_amax_scales_row(const float* x, GlobalScale global, SourceType source, int64_t cols,
                           uint8_t* scales);

/// codes [cols / 2], scales [cols / 16] -> cols values, in F32 arithmetic: the real scale is
/// rounded to F32, then its product with the code is.
void decode_nvfp4_row(const uint8_t* codes, const uint8_t* scales, GlobalScale global, int64_t cols,
                      float* out);

/// A block scale as files may hold it: finite and not negative.
inline bool nvfp4_scale_is_sound(uint8_t scale) { return scale < 0x7F; }

}  // namespace nibble
