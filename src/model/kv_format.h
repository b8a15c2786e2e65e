// The formats of KV pages and the bytes of a line in each. Plain numbers: device code and files
// that are compiled for one instruction set include this. kv_codec.h stores and reads numbers.
#pragma once

#include <cstdint>

namespace nibble {

enum class KvFormat : uint8_t {
  f32,
  bf16,
  fp8,  // E4M3, scale 1
};

constexpr int64_t kv_element_bits(KvFormat format) {
  return format == KvFormat::fp8 ? 8 : format == KvFormat::bf16 ? 16 : 32;
}
/// Bytes of the scales of one line, beside its elements.
constexpr int64_t kv_scale_bytes(KvFormat) { return 0; }
/// Bytes of one line: the key or the value of one head and token, with its scales.
constexpr int64_t kv_line_bytes(KvFormat format, int64_t head_dim) {
  return head_dim * kv_element_bits(format) / 8 + kv_scale_bytes(format);
}

}  // namespace nibble
