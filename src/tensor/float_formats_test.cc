// E4M3, F16 and BF16: every code decoded, every value and every midpoint encoded, against
// checksums of torch's results (tools/oracle/codec_golden.py builds the same inputs).
#include "tensor/float_formats.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <limits>
#include <vector>

#include "base/json.h"
#include "testing/source_dir.h"

namespace nibble {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

uint32_t crc32(const void* data, size_t bytes) {
  uint32_t crc = ~0U;
  for (const auto* at = static_cast<const uint8_t*>(data); bytes-- > 0; ++at) {
    crc ^= *at;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xEDB88320U : 0U);
  }
  return ~crc;
}
template <typename T>
uint32_t crc32(const std::vector<T>& values) {
  return crc32(values.data(), values.size() * sizeof(T));
}

uint32_t golden(const std::string& name) {
  std::ifstream file(NIBBLE_SOURCE_DIR "/tests/golden/codec/float_formats.json");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const Json json = parse_json(text, "float_formats.json").value();
  return static_cast<uint32_t>(json.find("crc32")->find(name)->as_int());
}

template <typename Code>
std::vector<float> values_of(float (*decode)(Code)) {
  std::vector<float> values;
  for (uint32_t code = 0; code <= std::numeric_limits<Code>::max(); ++code) {
    values.push_back(decode(static_cast<Code>(code)));
  }
  return values;
}

void sort_unique(std::vector<float>& values) {
  std::ranges::sort(values);
  values.erase(std::ranges::unique(values).begin(), values.end());
}

/// Every finite value, every midpoint of adjacent ones, and both adjacent floats of each.
std::vector<float> around(std::vector<float> values) {
  std::erase_if(values, [](float x) { return !std::isfinite(x); });
  for (float& x : values) x = std::fabs(x);
  sort_unique(values);
  std::vector<float> points = values;
  for (size_t i = 1; i < values.size(); ++i) {
    const double middle = (static_cast<double>(values[i]) + static_cast<double>(values[i - 1])) / 2;
    points.push_back(static_cast<float>(middle));
  }
  sort_unique(points);
  std::vector<float> out;
  for (const float x : points) out.push_back(std::nextafter(x, 0.0F));
  out.insert(out.end(), points.begin(), points.end());
  for (const float x : points) out.push_back(std::nextafter(x, kInfinity));
  const size_t half = out.size();
  for (size_t i = 0; i < half; ++i) out.push_back(-out[i]);
  return out;
}

std::vector<float> scattered() {
  std::vector<float> out;
  uint32_t state = 1;
  for (int i = 0; i < 1 << 20; ++i) {
    state = state * 1664525U + 1013904223U;
    const float x = std::bit_cast<float>(state);
    out.push_back(std::isnan(x) ? 0.0F : x);
  }
  return out;
}

template <typename Code>
void check_format(const std::string& name, float (*decode)(Code), Code (*encode)(float)) {
  std::vector<float> values = values_of(decode);
  const auto encode_all = [&](const std::vector<float>& inputs) {
    std::vector<Code> codes;
    for (const float x : inputs) codes.push_back(encode(x));
    return codes;
  };
  EXPECT_EQ(crc32(encode_all(around(values))), golden("f32_to_" + name + "_around"));
  EXPECT_EQ(crc32(encode_all(scattered())), golden("f32_to_" + name + "_scattered"));
  for (uint32_t code = 0; code < values.size(); ++code) {
    if (std::isnan(values[code])) continue;
    ASSERT_EQ(encode(values[code]), code) << name;
  }
  for (float& x : values) x = std::isnan(x) ? 0.0F : x;
  EXPECT_EQ(crc32(values), golden(name + "_to_f32"));
}

TEST(FloatFormats, F16EqualsTorch) { check_format<uint16_t>("f16", f16_to_float, float_to_f16); }
TEST(FloatFormats, Bf16EqualsTorch) {
  check_format<uint16_t>("bf16", bf16_to_float, float_to_bf16);
}
TEST(FloatFormats, FiniteE4m3IsTheSame) {
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 977) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (!std::isnan(value)) ASSERT_EQ(finite_to_e4m3(value), float_to_e4m3(value)) << value;
  }
}

TEST(FloatFormats, E4m3EqualsTorch) { check_format<uint8_t>("e4m3", e4m3_to_float, float_to_e4m3); }

TEST(FloatFormats, EdgesOfTheRange) {
  EXPECT_EQ(float_to_e4m3(kInfinity), 0x7E);
  EXPECT_EQ(float_to_e4m3(-1e9F), 0xFE);
  EXPECT_EQ(float_to_e4m3(std::nanf("")), 0x7F);
  EXPECT_TRUE(std::isnan(e4m3_to_float(0xFF)));
  EXPECT_EQ(float_to_f16(65520.0F), 0x7C00);
  EXPECT_EQ(float_to_f16(65519.996F), 0x7BFF);
  EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(std::nanf("")))));
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::bit_cast<float>(0x7F800001U)))));
}

TEST(FloatFormats, E2m1RoundsToTheEvenCode) {
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(float_to_e2m1(kE2m1Values[i]), i);
    EXPECT_EQ(float_to_e2m1(-kE2m1Values[i]), i | 8);
    EXPECT_EQ(e2m1_to_float(static_cast<uint8_t>(i | 8)), -kE2m1Values[i]);
    if (i == 7) continue;
    const float middle = (kE2m1Values[i] + kE2m1Values[i + 1]) / 2;
    EXPECT_EQ(float_to_e2m1(middle), i % 2 == 0 ? i : i + 1);
    EXPECT_EQ(float_to_e2m1(std::nextafter(middle, 0.0F)), i);
    EXPECT_EQ(float_to_e2m1(std::nextafter(middle, 9.0F)), i + 1);
  }
  EXPECT_EQ(float_to_e2m1(kInfinity), 7);
}

}  // namespace
}  // namespace nibble
