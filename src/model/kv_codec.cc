// Numbers to and from the formats, one at a time.
#include "model/kv_codec.h"

#include <algorithm>
#include <cmath>

#include "tensor/float_formats.h"

namespace nibble {
namespace {

template <typename T, typename Encode>
void scatter(std::span<const float> from, std::byte* to, int64_t stride, const Encode& encode) {
  auto* out = reinterpret_cast<T*>(to);
  for (size_t i = 0; i < from.size(); ++i) out[static_cast<int64_t>(i) * stride] = encode(from[i]);
}

template <typename T, typename Test>
bool all_of(std::span<const std::byte> page, const Test& test) {
  const std::span<const T> numbers{reinterpret_cast<const T*>(page.data()),
                                   page.size() / sizeof(T)};
  return std::ranges::all_of(numbers, test);
}

}  // namespace

std::string_view kv_format_name(KvFormat format) {
  return format == KvFormat::fp8 ? "fp8 (e4m3)" : format == KvFormat::bf16 ? "bf16" : "f32";
}

void kv_store(KvFormat format, std::span<const float> from, std::byte* to, int64_t stride) {
  switch (format) {
    case KvFormat::f32:
      return scatter<float>(from, to, stride, [](float x) { return x; });
    case KvFormat::bf16:
      return scatter<uint16_t>(from, to, stride, float_to_bf16);
    case KvFormat::fp8:
      return scatter<uint8_t>(from, to, stride, float_to_e4m3);
  }
}

float kv_kept(KvFormat format, float x) {
  switch (format) {
    case KvFormat::f32:
      return x;
    case KvFormat::bf16:
      return bf16_to_float(float_to_bf16(x));
    case KvFormat::fp8:
      return e4m3_to_float(float_to_e4m3(x));
  }
  return x;
}

bool kv_finite(KvFormat format, std::span<const std::byte> page) {
  switch (format) {
    case KvFormat::f32:
      return all_of<float>(page, [](float x) { return std::isfinite(x); });
    case KvFormat::bf16:
      return all_of<uint16_t>(page, [](uint16_t code) { return (code & 0x7F80U) != 0x7F80U; });
    case KvFormat::fp8:
      return all_of<uint8_t>(page, [](uint8_t code) { return (code & 0x7FU) != 0x7FU; });
  }
  return false;
}

}  // namespace nibble
