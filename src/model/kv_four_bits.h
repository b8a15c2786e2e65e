// The two formats of 4 bits a number: how a line is stored and read. Every step is an F32 operation
// rounded to nearest even in a stated order, so that all backends can store the same bits.
#pragma once

#include <span>

#include "model/kv_codec.h"

namespace nibble {

/// E2M1 numbers under a scale in E4M3 for each 16, global scale 1: the scale is max |x| / 6 rounded
/// to nearest even, at most 448; a code is x / scale rounded to nearest even, at most 6. A group
/// whose scale rounds to zero reads as zero. A number that is not finite makes its scale NaN.
namespace kv_nvfp4 {
void store(std::span<const float> line, const KvLinePlace& to);
void load(const KvLinePlace& from, std::span<float> line);
}  // namespace kv_nvfp4

/// Keys by TurboQuant with norm correction (arXiv 2504.19874, as vLLM's turboquant_4bit_nc): with r
/// the key times the Hadamard matrix and n its norm, r / n is close to N(0, 1), and each number
/// becomes the code of the nearest of kKvCentroids. The factor n / |c|, c the centroids of the
/// codes, is stored in F16, so that the key that is read, factor * c, has its norm again. A key
/// with n = 0 reads as zero; a norm that is not finite makes the factor NaN, and a factor beyond
/// F16 becomes the largest. Norms are the roots of sums of squares in which halves are added to
/// halves.
namespace kv_turboquant_keys {
void store(std::span<const float> line, const KvLinePlace& to);
void load(const KvLinePlace& from, std::span<float> line);
}  // namespace kv_turboquant_keys

/// Values: 16 uniform steps from the least to the largest number of the line. The step and the
/// least number are stored in F16, codes are floor((x - least) / step + 1/2) by the stored ones, 0
/// to 15, and a value that is read is fma(step, code, least).
namespace kv_uniform_values {
void store(std::span<const float> line, const KvLinePlace& to);
void load(const KvLinePlace& from, std::span<float> line);
}  // namespace kv_uniform_values

/// line = line H, H the Hadamard matrix of Sylvester's order without its factor, by butterflies of
/// strides 1, 2, 4 ... The size is a power of two.
void hadamard(std::span<float> line);

}  // namespace nibble
