// Each format against its definition: sizes, what is kept of a number, and pages with one that is
// not finite.
#include "model/kv_codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <vector>

namespace nibble {
namespace {

constexpr KvFormat kFormats[] = {KvFormat::f32, KvFormat::bf16, KvFormat::fp8};
static_assert(std::size(kFormats) == kKvFormats);

TEST(KvCodecTest, EveryFormatIsARowOfItsOwn) {
  std::set<std::string> names;
  for (int i = 0; i < kKvFormats; ++i) names.insert(kv_traits(static_cast<KvFormat>(i)).name);
  EXPECT_EQ(names, (std::set<std::string>{"bf16", "f32", "fp8 (e4m3)"}));
}

TEST(KvCodecTest, LinesHaveTheirBytes) {
  EXPECT_EQ(kv_line_bytes(KvFormat::f32, 256), 1024);
  EXPECT_EQ(kv_line_bytes(KvFormat::bf16, 256), 512);
  EXPECT_EQ(kv_line_bytes(KvFormat::fp8, 256), 256);
  EXPECT_EQ(kv_line_bytes(KvFormat::bf16, 32), 64);
}

TEST(KvCodecTest, KeepsWhatTheFormatHolds) {
  const auto kept = [](KvFormat format, std::vector<float> line) {
    kv_keep(format, line, line.data());
    return line;
  };
  using Line = std::vector<float>;
  EXPECT_EQ(kept(KvFormat::f32, {1.1F, -3.0F}), (Line{1.1F, -3.0F}));
  EXPECT_EQ(kept(KvFormat::bf16, {1.0F + 0x1p-9F, 1.0F + 0x3p-8F}),  // the first a tie, to even
            (Line{1.0F, 1.0F + 0x1p-6F}));
  EXPECT_EQ(kept(KvFormat::fp8, {1.0F + 0x1p-4F, 17.5F, 500.0F}), (Line{1.0F, 18.0F, 448.0F}));
}

TEST(KvCodecTest, StoresApartAndFindsNumbersThatAreNone) {
  for (const KvFormat format : kFormats) {
    constexpr int64_t kStride = 3;
    const std::vector<float> numbers = {0.5F, -2.0F, 0.0F, 12.0F};
    std::vector<std::byte> page(static_cast<size_t>(kv_line_bytes(format, 4 * kStride)));
    kv_store(format, numbers, page.data(), kStride);
    EXPECT_TRUE(kv_finite(format, page)) << kv_traits(format).name;
    size_t zeros = 0;
    for (const std::byte byte : page) zeros += byte == std::byte{0} ? 1 : 0;
    EXPECT_GE(zeros, page.size() - 3 * page.size() / 12) << kv_traits(format).name;
    const std::vector<float> bad = {std::numeric_limits<float>::quiet_NaN()};
    const int64_t at = kv_line_bytes(format, 4);
    kv_store(format, bad, page.data() + at, 1);
    EXPECT_FALSE(kv_finite(format, page)) << kv_traits(format).name;
  }
}

}  // namespace
}  // namespace nibble
