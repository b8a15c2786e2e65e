// RoundedTensors: groups rounded as their rule says, the same in whatever pieces they are read.
#include "eval/rounded_tensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

namespace nibble {
namespace {

/// Two tensors of F32 in memory: "w" [rows, cols], and "v".
class TwoTensors final : public TensorSource {
 public:
  TwoTensors(int64_t rows, int64_t cols) : values_(static_cast<size_t>(rows * cols)) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0.0F, 0.02F);
    for (float& value : values_) value = normal(random);
    w_ = {.name = "w", .shape = {rows, cols}, .bytes = rows * cols * 4};
    v_ = {.name = "v", .shape = {rows * cols}, .bytes = rows * cols * 4};
  }
  const TensorEntry* find(std::string_view name) const override {
    return name == "w" ? &w_ : name == "v" ? &v_ : nullptr;
  }
  Result<void> read_bytes(const TensorEntry&, int64_t begin,
                          std::span<std::byte> out) const override {
    const auto all = std::as_bytes(std::span(values_));
    std::memcpy(out.data(), all.data() + begin, out.size());
    return {};
  }
  std::vector<float>& values() { return values_; }

 private:
  std::vector<float> values_;
  TensorEntry w_, v_;
};

const SimulatedFormat& format_of(std::string_view name) {
  for (const SimulatedFormat& format : simulated_formats())
    if (format.name == name) return format;
  ADD_FAILURE() << "no format " << name;
  return simulated_formats().front();
}

std::vector<float> read_all(const TensorSource& source, const char* name) {
  auto tensor = source.read(*source.find(name));
  EXPECT_TRUE(tensor.ok());
  const float* data = tensor.value().as<float>();
  return {data, data + tensor.value().shape().count()};
}

TEST(RoundedTensors, FollowsTheRules) {
  TwoTensors source(1, 4);
  source.values() = {12.7F, -0.26F, 0.0F, 0.04F};
  const auto rounded = [&](const char* name) {
    return read_all(RoundedTensors(source, format_of(name), {{"w", 4}}), "w");
  };
  const float int8_step = 12.7F / 127.0F;
  EXPECT_EQ(rounded("int8"), (std::vector<float>{127 * int8_step, -3 * int8_step, 0.0F, 0.0F}));
  // The largest is 12.7, so the scale is 2 to the power of 3 - 2: codes 6 (saturated), -0 and 0.
  EXPECT_EQ(rounded("mxfp4"), (std::vector<float>{12.0F, -0.0F, 0.0F, 0.0F}));
  source.values() = {7.0F, -2.4F, 0.6F, 0.4F};
  EXPECT_EQ(rounded("int4"), (std::vector<float>{7.0F, -2.0F, 1.0F, 0.0F}));
  source.values() = {6.0F, 5.0F, -2.5F, 0.25F};  // ties to the even code
  EXPECT_EQ(rounded("mxfp4"), (std::vector<float>{6.0F, 4.0F, -2.0F, 0.0F}));
  source.values() = {0.0F, 0.0F, 0.0F, 0.0F};
  for (const SimulatedFormat& format : simulated_formats())
    EXPECT_EQ(rounded(std::string(format.name).c_str()), source.values()) << format.name;
}

TEST(RoundedTensors, GivesTheSameInAnyPieces) {
  const TwoTensors source(5, 72);  // groups of 32 end with one of 8
  std::mt19937 random(4);
  for (const SimulatedFormat& format : simulated_formats()) {
    const RoundedTensors rounded(source, format, {{"w", 72}});
    EXPECT_EQ(rounded.find("v"), source.find("v"));
    EXPECT_EQ(rounded.find("x"), nullptr);
    EXPECT_EQ(read_all(rounded, "v"), read_all(source, "v"));
    const std::vector<float> whole = read_all(rounded, "w");
    EXPECT_NE(whole, read_all(source, "w"));
    const auto bytes = std::as_bytes(std::span(whole));
    for (int i = 0; i < 200; ++i) {
      const size_t begin = random() % bytes.size();
      std::vector<std::byte> piece(1 + random() % (bytes.size() - begin));
      ASSERT_TRUE(rounded.read_bytes(*rounded.find("w"), static_cast<int64_t>(begin), piece).ok());
      ASSERT_TRUE(std::ranges::equal(piece, bytes.subspan(begin, piece.size()))) << format.name;
    }
  }
}

TEST(RoundedTensors, MovesNoWeightByMoreThanHalfOfItsStep) {
  const TwoTensors source(4, 64);
  const std::vector<float> before = read_all(source, "w");
  for (const char* name : {"int8", "int4"}) {
    const SimulatedFormat& format = format_of(name);
    const std::vector<float> after = read_all(RoundedTensors(source, format, {{"w", 64}}), "w");
    const auto group = static_cast<size_t>(format.group == 0 ? 64 : format.group);
    for (size_t i = 0; i < before.size(); ++i) {
      const size_t begin = i / group * group;
      float most = 0.0F;
      for (size_t j = begin; j < begin + group; ++j) most = std::max(most, std::fabs(before[j]));
      const float step = most / (format.code_bits == 8 ? 127.0F : 7.0F);
      ASSERT_LE(std::fabs(after[i] - before[i]), 0.51F * step + 0.03F * std::fabs(before[i]));
    }
  }
}

}  // namespace
}  // namespace nibble
