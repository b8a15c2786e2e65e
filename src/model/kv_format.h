// The formats of KV pages: what a line of each is made of, one row for each format, which the
// kernels, the pools and the memory plan of all backends read. Plain numbers: device code and files
// that are compiled for one instruction set include this. kv_codec.h stores and reads numbers.
#pragma once

#include <cstdint>

namespace nibble {

enum class KvFormat : uint8_t {
  f32,
  bf16,
  fp8,  // E4M3, scale 1
};
inline constexpr int kKvFormats = 3;

struct KvTraits {
  const char* name = "";     // for people
  const char* option = "";   // the word of --kv-cache-dtype; "": no option names it
  int32_t element_bits = 0;  // of a number, without scales
  int32_t scale_group = 0;  // adjacent numbers of a line that share a scale; 0: there are no scales
  int32_t scale_bytes = 0;  // of a scale; the scales of a line follow its numbers
  int32_t dim_multiple = 1;  // of a head size, so that a line is whole bytes
};

constexpr KvTraits kv_traits(KvFormat format) {
  switch (format) {
    case KvFormat::f32:
      return {.name = "f32", .element_bits = 32};
    case KvFormat::bf16:
      return {.name = "bf16", .option = "bf16", .element_bits = 16};
    case KvFormat::fp8:
      return {.name = "fp8 (e4m3)", .option = "fp8", .element_bits = 8};
  }
  return {};
}

/// Bytes of one line: the key or the value of one head and token, with its scales.
constexpr int64_t kv_line_bytes(KvFormat format, int64_t head_dim) {
  const KvTraits row = kv_traits(format);
  const int64_t scales = row.scale_group == 0 ? 0 : head_dim / row.scale_group * row.scale_bytes;
  return head_dim * row.element_bits / 8 + scales;
}

}  // namespace nibble
