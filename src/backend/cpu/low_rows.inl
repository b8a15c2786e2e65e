// Products whose activations have few bits too, for weights that are quantized:
//   nvfp4      x in groups of 16 as int8 codes times one F32 scale, weights as integers 2 * E2M1
//   fp8        x rounded to BF16, weights as BF16, which E4M3 codes are exactly
// The bits are the same on every instruction set: integer sums are exact, and each F32 sum has the
// order of the instruction that AVX-512 has for it (odd column first).
// The bound: the bytes of the panels for few rows; for many rows four integer products of 64
// weights and three instructions that scale them per group, panel and row, or one product of 32.

namespace nibble::cpu {
namespace {

constexpr int kLowGroup = 16;  // columns of one activation scale, as of one weight scale
constexpr float kLowMax = 127.0F;
constexpr float kWeightUnit = 0.5F;  // weights are multiplied as integers 2 * E2M1

/// Bytes from the first row of low_x to a row of inputs.
inline int64_t low_offset(const LinearPanels& a, int64_t row) {
  return (a.low_rows == nullptr ? row : a.low_rows[row]) * a.low_stride;
}

/// The value that lies so many bytes after `p`.
template <typename T>
inline T at_bytes(const T* p, int64_t bytes) {
  T value;
  __builtin_memcpy(&value, reinterpret_cast<const std::byte*>(p) + bytes, sizeof value);
  return value;
}

/// The parts of one row of integer activations: codes [Kp] in the order of load_codes, scales
/// [Kp / 16], offsets [Kp / 16], which undo that weights are multiplied with kWeightOffset added.
struct LowRow {
  const std::byte* codes;
  const float* scales;
  const int32_t* offsets;
  LowRow(const std::byte* row, int64_t k_padded)
      : codes(row),
        scales(reinterpret_cast<const float*>(row + k_padded)),
        offsets(reinterpret_cast<const int32_t*>(scales + k_padded / kLowGroup)) {}
  LowRow(const LinearPanels& a, int64_t row) : LowRow(a.low_x + low_offset(a, row), a.k_padded) {}
};

/// low_offset() of R rows from `row` on.
template <int R>
inline void low_offsets(const LinearPanels& a, int64_t row, int64_t (&offsets)[R]) {
  for (int r = 0; r < R; ++r) offsets[r] = low_offset(a, row + r);
}

/// NaN and infinity become a scale that is none, so that they reach the outputs.
void quantize_row(const float* x, int64_t k_padded, std::byte* out) {
  auto* scales = reinterpret_cast<float*>(out + k_padded);
  auto* offsets = reinterpret_cast<int32_t*>(scales + k_padded / kLowGroup);
  for (int64_t g = 0; g < k_padded / kLowGroup; ++g) {
    const float* group = x + g * kLowGroup;
    const Vec values = load(group);
    const uint32_t largest_bits = reduce_max_bits(mask_words(as_words(values), 0x7FFFFFFFU));
    float largest;
    __builtin_memcpy(&largest, &largest_bits, sizeof largest);
    const float inverse = largest > 0.0F ? kLowMax / largest : 0.0F;
    // Adding 1.5 * 2^23 rounds to an integer, which is then the low bits.
    const Words rounded = as_words(add(mul(values, broadcast(inverse)), broadcast(12582912.0F)));
    const int32_t sum = store_codes(out + g * kLowGroup, rounded);
    scales[g] = largest * (kWeightUnit / kLowMax);
    offsets[g] = -kWeightOffset * sum;
  }
}

/// Nearest even. Below 2^-100 it is zero, so that no product or sum is ever subnormal, which the
/// instruction of AVX-512 would take for zero.
void round_row(const float* x, int64_t k_padded, std::byte* out) {
  auto* words = reinterpret_cast<uint16_t*>(out);
  for (int64_t k = 0; k < k_padded; ++k) {
    uint32_t bits;
    __builtin_memcpy(&bits, x + k, sizeof bits);
    const uint32_t magnitude = bits & 0x7FFFFFFFU;
    uint32_t rounded = (bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16;
    rounded = magnitude > 0x7F800000U ? 0x7FC0U : rounded;
    words[k] = static_cast<uint16_t>(magnitude < 0x0D800000U ? 0U : rounded);  // 2^-100
  }
}

}  // namespace
}  // namespace nibble::cpu
