// The formats of KV pages: what a line of each is made of, one row for each format, which the
// kernels, the pools and the memory plan of all backends read. Plain numbers: device code and files
// that are compiled for one instruction set include this. kv_codec.h stores and reads numbers.
#pragma once

#include <cstdint>

namespace nibble {

enum class KvFormat : uint8_t {
  f32,
  bf16,
  fp8,                 // E4M3, scale 1
  turboquant_4bit_nc,  // keys rotated, codes of centroids and a norm; values uniform codes
  nvfp4,               // E2M1, an E4M3 scale for 16 numbers, global scale 1
};
inline constexpr int kKvFormats = 5;

/// A line is a key or a value of one head and token.
enum class KvSide : uint8_t { keys, values };

/// The parts of a line: its numbers, and the scales that go with them.
struct KvLine {
  int32_t element_bits = 0;  // of a number, without scales; two of 4 bits lie low nibble first
  int32_t scale_group = 0;   // adjacent numbers that share a scale of one byte; 0: there are none
  int32_t whole_bytes = 0;   // of what the whole line shares: a norm, or a scale and a zero point
};

struct KvTraits {
  const char* name = "";    // for people
  const char* option = "";  // the word of --kv-cache-dtype; "": no option names it
  KvLine keys;
  KvLine values;
  int32_t dim_multiple = 1;  // of a head size, so that a line is whole bytes
  // Keys are kept turned by the Hadamard matrix, and queries are turned likewise; the head size is
  // a power of two.
  bool rotates = false;
};

constexpr KvTraits kv_traits(KvFormat format) {
  constexpr auto plain = [](const char* name, const char* option, int32_t bits) {
    return KvTraits{.name = name,
                    .option = option,
                    .keys = {.element_bits = bits},
                    .values = {.element_bits = bits}};
  };
  switch (format) {
    case KvFormat::f32:
      return plain("f32", "", 32);
    case KvFormat::bf16:
      return plain("bf16", "bf16", 16);
    case KvFormat::fp8:
      return plain("fp8 (e4m3)", "fp8", 8);
    case KvFormat::turboquant_4bit_nc:
      return {.name = "turboquant_4bit_nc",
              .option = "turboquant_4bit_nc",
              .keys = {.element_bits = 4, .whole_bytes = 2},
              .values = {.element_bits = 4, .whole_bytes = 4},
              .dim_multiple = 16,
              .rotates = true};
    case KvFormat::nvfp4:
      return {.name = "nvfp4",
              .option = "nvfp4",
              .keys = {.element_bits = 4, .scale_group = 16},
              .values = {.element_bits = 4, .scale_group = 16},
              .dim_multiple = 16};
  }
  return {};
}

constexpr KvLine kv_line(KvFormat format, KvSide side) {
  return side == KvSide::keys ? kv_traits(format).keys : kv_traits(format).values;
}
/// Bytes of the numbers of a line, and of its scales.
constexpr int64_t kv_code_bytes(KvFormat format, int64_t head_dim) {
  return head_dim * kv_traits(format).keys.element_bits / 8;
}
constexpr int64_t kv_scale_bytes(KvFormat format, KvSide side, int64_t head_dim) {
  const KvLine line = kv_line(format, side);
  return (line.scale_group == 0 ? 0 : head_dim / line.scale_group) + line.whole_bytes;
}
constexpr int64_t kv_line_bytes(KvFormat format, KvSide side, int64_t head_dim) {
  return kv_code_bytes(format, head_dim) + kv_scale_bytes(format, side, head_dim);
}
/// Bytes of one token of one head: a key and a value.
constexpr int64_t kv_token_bytes(KvFormat format, int64_t head_dim) {
  return kv_line_bytes(format, KvSide::keys, head_dim) +
         kv_line_bytes(format, KvSide::values, head_dim);
}

/// The centroids that turboquant_4bit_nc codes keys by: the 16 levels of the quantizer of N(0, 1)
/// with the least mean squared error (Lloyd-Max: boundaries midway between levels, each level the
/// mean of the distribution between its boundaries), rounded to BF16, so that tensor cores multiply
/// them exactly; the error grows by 0.02 %. Computed by tools/oracle/kv_centroids.py. Ascending;
/// code 15 - i is the negative of code i.
inline constexpr float kKvCentroids[16] = {
    -2.734375F,    -2.0625F,       -1.6171875F,   -1.2578125F,  -0.94140625F, -0.65625F,
    -0.388671875F, -0.1279296875F, 0.1279296875F, 0.388671875F, 0.65625F,     0.94140625F,
    1.2578125F,    1.6171875F,     2.0625F,       2.734375F};

/// The boundary between the codes i and i + 1 (0 .. 14); a number on it has code i.
constexpr float kv_centroid_boundary(int i) { return (kKvCentroids[i] + kKvCentroids[i + 1]) / 2; }

/// The numbers that a layer's keys and values are divided by before an FP8 page keeps them.
struct KvScale {
  float keys = 1.0F;
  float values = 1.0F;
};
/// Scales beyond these are not used: queries times the smallest keep their precision in F16.
inline constexpr float kKvScaleLeast = 1e-4F;
inline constexpr float kKvScaleMost = 1e3F;

}  // namespace nibble
