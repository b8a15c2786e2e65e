// Lines to and from the formats, a row of functions for each.
#include "model/kv_codec.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "tensor/float_formats.h"

namespace nibble {
namespace {

struct KvCodec {
  void (*store)(std::span<const float> line, std::byte* to, int64_t stride);
  void (*keep)(std::span<const float> line, float* to);
  bool (*finite)(std::span<const std::byte> page);
};

/// A format without scales: each number is a Code by itself.
template <typename Code, Code (*kEncode)(float), float (*kDecode)(Code), bool (*kFinite)(Code)>
struct PlainCodec {
  static void store(std::span<const float> line, std::byte* to, int64_t stride) {
    auto* out = reinterpret_cast<Code*>(to);
    for (size_t i = 0; i < line.size(); ++i)
      out[static_cast<int64_t>(i) * stride] = kEncode(line[i]);
  }
  static void keep(std::span<const float> line, float* to) {
    std::ranges::transform(line, to, [](float x) { return kDecode(kEncode(x)); });
  }
  static bool finite(std::span<const std::byte> page) {
    return std::ranges::all_of(
        std::span{reinterpret_cast<const Code*>(page.data()), page.size() / sizeof(Code)}, kFinite);
  }
  static constexpr KvCodec row() { return {store, keep, finite}; }
};

float same(float x) { return x; }
bool finite_f32(float x) { return std::isfinite(x); }
bool finite_bf16(uint16_t code) { return (code & 0x7F80U) != 0x7F80U; }
bool finite_e4m3(uint8_t code) { return (code & 0x7FU) != 0x7FU; }

constexpr KvCodec codec_of(KvFormat format) {
  switch (format) {
    case KvFormat::f32:
      return PlainCodec<float, same, same, finite_f32>::row();
    case KvFormat::bf16:
      return PlainCodec<uint16_t, float_to_bf16, bf16_to_float, finite_bf16>::row();
    case KvFormat::fp8:
      return PlainCodec<uint8_t, float_to_e4m3, e4m3_to_float, finite_e4m3>::row();
  }
  return {};
}

}  // namespace

void kv_store(KvFormat format, std::span<const float> line, std::byte* to, int64_t stride) {
  CHECK(line.size() % static_cast<size_t>(kv_traits(format).dim_multiple) == 0, "a line of ",
        line.size(), " numbers in ", kv_traits(format).name);
  codec_of(format).store(line, to, stride);
}

void kv_keep(KvFormat format, std::span<const float> line, float* to) {
  codec_of(format).keep(line, to);
}

bool kv_finite(KvFormat format, std::span<const std::byte> page) {
  return codec_of(format).finite(page);
}

}  // namespace nibble
