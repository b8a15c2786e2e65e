// Lines of 4 bits a number.
#include "model/kv_four_bits.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "tensor/float_formats.h"

namespace nibble {
namespace {

constexpr size_t kGroup = 16;
constexpr size_t kDimMax = 4096;
constexpr float kF16Max = 65504.0F;

void put_pair(const KvLinePlace& to, size_t pair, uint8_t low, uint8_t high) {
  to.codes[static_cast<int64_t>(pair) * to.code_stride] = static_cast<std::byte>(low | high << 4);
}
uint8_t code_at(const KvLinePlace& from, size_t i) {
  const auto pair =
      static_cast<uint8_t>(from.codes[static_cast<int64_t>(i / 2) * from.code_stride]);
  return i % 2 == 0 ? pair & 15U : pair >> 4;
}

/// F16 by rounding to nearest even; finite numbers beyond its range become the largest, others NaN.
float put_f16(std::byte* to, float x) {
  const float kept =
      std::isfinite(x) ? std::clamp(x, -kF16Max, kF16Max) : std::numeric_limits<float>::quiet_NaN();
  const uint16_t code = float_to_f16(kept);
  to[0] = static_cast<std::byte>(code & 255U);
  to[1] = static_cast<std::byte>(code >> 8);
  return f16_to_float(code);
}
float f16_at(const std::byte* from) {
  return f16_to_float(
      static_cast<uint16_t>(static_cast<unsigned>(from[0]) | static_cast<unsigned>(from[1]) << 8));
}

/// The sum of squares of a power of two of numbers, halves added to halves.
float squares(std::span<const float> line) {
  float sums[kDimMax];
  size_t count = line.size();
  for (size_t i = 0; i < count; ++i) sums[i] = line[i] * line[i];
  while (count > 1) {
    count /= 2;
    for (size_t i = 0; i < count; ++i) sums[i] += sums[i + count];
  }
  return sums[0];
}

uint8_t centroid_code(float x) {
  int code = 0;
  for (int i = 0; i < 15; ++i) code += x > kv_centroid_boundary(i) ? 1 : 0;
  return static_cast<uint8_t>(code);
}

bool all_of_finite(std::span<const float> line) {
  return std::ranges::all_of(line, [](float x) { return std::isfinite(x); });
}

}  // namespace

void hadamard(std::span<float> line) {
  CHECK(std::has_single_bit(line.size()), "a rotation of ", line.size(), " numbers");
  for (size_t stride = 1; stride < line.size(); stride *= 2)
    for (size_t i = 0; i < line.size(); ++i) {
      if ((i & stride) != 0) continue;
      const float a = line[i];
      const float b = line[i + stride];
      line[i] = a + b;
      line[i + stride] = a - b;
    }
}

namespace kv_nvfp4 {

void store(std::span<const float> line, const KvLinePlace& to) {
  for (size_t begin = 0; begin < line.size(); begin += kGroup) {
    const auto group = line.subspan(begin, kGroup);
    float largest = 0.0F;
    for (const float x : group) largest = std::max(largest, std::fabs(x));
    const bool sound = all_of_finite(group);
    const uint8_t code =
        float_to_e4m3(sound ? largest / kE2m1Max : std::numeric_limits<float>::quiet_NaN());
    to.scales[static_cast<int64_t>(begin / kGroup) * to.scale_stride] =
        static_cast<std::byte>(code & 0x7FU);
    const float scale = e4m3_to_float(code);
    const auto code_of = [&](float x) -> uint8_t {
      return sound && scale > 0.0F ? float_to_e2m1(x / scale) : 0;
    };
    for (size_t i = 0; i < kGroup; i += 2)
      put_pair(to, (begin + i) / 2, code_of(group[i]), code_of(group[i + 1]));
  }
}

void load(const KvLinePlace& from, std::span<float> line) {
  for (size_t i = 0; i < line.size(); ++i) {
    const auto scale =
        static_cast<uint8_t>(from.scales[static_cast<int64_t>(i / kGroup) * from.scale_stride]);
    line[i] = e2m1_to_float(code_at(from, i)) * e4m3_to_float(scale);
  }
}

}  // namespace kv_nvfp4

namespace kv_turboquant_keys {

void store(std::span<const float> line, const KvLinePlace& to) {
  CHECK(line.size() <= kDimMax, "a line of ", line.size(), " numbers");
  float turned[kDimMax];
  const std::span<float> r(turned, line.size());
  std::ranges::copy(line, r.begin());
  hadamard(r);
  const float norm = std::sqrt(squares(line));
  for (float& x : r) x = norm > 0.0F && std::isfinite(norm) ? x / norm : 0.0F;
  for (size_t i = 0; i < r.size(); i += 2) {
    const uint8_t low = centroid_code(r[i]);
    const uint8_t high = centroid_code(r[i + 1]);
    put_pair(to, i / 2, low, high);
    r[i] = kKvCentroids[low];
    r[i + 1] = kKvCentroids[high];
  }
  put_f16(to.scales, norm / std::sqrt(squares(r)));
}

void load(const KvLinePlace& from, std::span<float> line) {
  const float factor = f16_at(from.scales);
  for (size_t i = 0; i < line.size(); ++i) line[i] = kKvCentroids[code_at(from, i)] * factor;
}

}  // namespace kv_turboquant_keys

namespace kv_uniform_values {

void store(std::span<const float> line, const KvLinePlace& to) {
  const bool sound = all_of_finite(line);
  const auto [least, most] = std::ranges::minmax(line);
  const float wanted = sound ? (most - least) / 15.0F : std::numeric_limits<float>::quiet_NaN();
  const float step = put_f16(to.scales, std::min(wanted, kF16Max));
  const float base = put_f16(to.scales + 2, sound ? least : 0.0F);
  const auto code_of = [&](float x) -> uint8_t {
    if (!sound || step == 0.0F) return 0;
    return static_cast<uint8_t>(std::clamp(std::floor((x - base) / step + 0.5F), 0.0F, 15.0F));
  };
  for (size_t i = 0; i < line.size(); i += 2)
    put_pair(to, i / 2, code_of(line[i]), code_of(line[i + 1]));
}

void load(const KvLinePlace& from, std::span<float> line) {
  const float step = f16_at(from.scales);
  const float base = f16_at(from.scales + 2);
  for (size_t i = 0; i < line.size(); ++i)
    line[i] = std::fma(step, static_cast<float>(code_at(from, i)), base);
}

}  // namespace kv_uniform_values
}  // namespace nibble
