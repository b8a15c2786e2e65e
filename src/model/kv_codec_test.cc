// Each format against its definition: sizes, what is kept of a number, and pages with one that is
// not finite.
#include "model/kv_codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace nibble {
namespace {

constexpr KvFormat kFormats[] = {KvFormat::f32, KvFormat::bf16, KvFormat::fp8};

TEST(KvCodecTest, LinesHaveTheirBytes) {
  EXPECT_EQ(kv_line_bytes(KvFormat::f32, 256), 1024);
  EXPECT_EQ(kv_line_bytes(KvFormat::bf16, 256), 512);
  EXPECT_EQ(kv_line_bytes(KvFormat::fp8, 256), 256);
  EXPECT_EQ(kv_line_bytes(KvFormat::bf16, 32), 64);
}

TEST(KvCodecTest, KeepsWhatTheFormatHolds) {
  EXPECT_EQ(kv_kept(KvFormat::f32, 1.1F), 1.1F);
  EXPECT_EQ(kv_kept(KvFormat::bf16, 1.0F + 0x1p-9F), 1.0F);  // tie to even
  EXPECT_EQ(kv_kept(KvFormat::bf16, 1.0F + 0x3p-8F), 1.0F + 0x1p-6F);
  EXPECT_EQ(kv_kept(KvFormat::fp8, 1.0F + 0x1p-4F), 1.0F);
  EXPECT_EQ(kv_kept(KvFormat::fp8, 17.5F), 18.0F);
}

TEST(KvCodecTest, StoresApartAndFindsNumbersThatAreNone) {
  for (const KvFormat format : kFormats) {
    constexpr int64_t kStride = 3;
    const std::vector<float> numbers = {0.5F, -2.0F, 0.0F, 12.0F};
    std::vector<std::byte> page(static_cast<size_t>(kv_line_bytes(format, 4 * kStride)));
    kv_store(format, numbers, page.data(), kStride);
    EXPECT_TRUE(kv_finite(format, page)) << kv_format_name(format);
    size_t zeros = 0;
    for (const std::byte byte : page) zeros += byte == std::byte{0} ? 1 : 0;
    EXPECT_GE(zeros, page.size() - 3 * page.size() / 12) << kv_format_name(format);
    const std::vector<float> bad = {std::numeric_limits<float>::quiet_NaN()};
    const int64_t at = kv_line_bytes(format, 4);
    kv_store(format, bad, page.data() + at, 1);
    EXPECT_FALSE(kv_finite(format, page)) << kv_format_name(format);
  }
}

}  // namespace
}  // namespace nibble
