// Each format against its definition: sizes, what is kept of a number, and pages with one that is
// not finite.
#include "model/kv_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "model/batch.h"

namespace nibble {
namespace {

constexpr KvFormat kFormats[] = {KvFormat::f32, KvFormat::bf16, KvFormat::fp8,
                                 KvFormat::turboquant_4bit_nc, KvFormat::nvfp4};
constexpr KvSide kSides[] = {KvSide::keys, KvSide::values};
static_assert(std::size(kFormats) == kKvFormats);

TEST(KvCodecTest, EveryFormatIsARowOfItsOwn) {
  std::set<std::string> names;
  for (int i = 0; i < kKvFormats; ++i) names.insert(kv_traits(static_cast<KvFormat>(i)).name);
  EXPECT_EQ(names,
            (std::set<std::string>{"bf16", "f32", "fp8 (e4m3)", "nvfp4", "turboquant_4bit_nc"}));
}

TEST(KvCodecTest, LinesHaveTheirBytes) {
  const auto bytes = [](KvFormat format, KvSide side) { return kv_line_bytes(format, side, 256); };
  for (const KvSide side : kSides) {
    EXPECT_EQ(bytes(KvFormat::f32, side), 1024);
    EXPECT_EQ(bytes(KvFormat::bf16, side), 512);
    EXPECT_EQ(bytes(KvFormat::fp8, side), 256);
    EXPECT_EQ(bytes(KvFormat::nvfp4, side), 144);
    EXPECT_EQ(kv_line_bytes(KvFormat::bf16, side, 32), 64);
  }
  EXPECT_EQ(bytes(KvFormat::turboquant_4bit_nc, KvSide::keys), 130);
  EXPECT_EQ(bytes(KvFormat::turboquant_4bit_nc, KvSide::values), 132);
  EXPECT_EQ(kv_token_bytes(KvFormat::turboquant_4bit_nc, 256), 262);
  EXPECT_EQ(kv_token_bytes(KvFormat::nvfp4, 256), 288);
}

TEST(KvCodecTest, RefusesHeadSizesThatAFormatCannotKeep) {
  ModelConfig config;
  config.layers = {LayerKind::attention};
  const auto refusal = [&](KvFormat format, int head_dim) {
    config.attention.head_dim = head_dim;
    const Result<void> checked = check_kv_head_dim(format, config);
    return checked ? "" : checked.error().message;
  };
  for (const KvFormat format : kFormats) EXPECT_EQ(refusal(format, 256), "");
  EXPECT_EQ(refusal(KvFormat::nvfp4, 80), "");
  EXPECT_EQ(refusal(KvFormat::fp8, 12), "");
  EXPECT_EQ(refusal(KvFormat::turboquant_4bit_nc, 80),
            "--kv-cache-dtype turboquant_4bit_nc: expected a head size that is a power of two and "
            "a multiple of 16, found 80; this model's keys and values can be kept as auto, bf16, "
            "fp8, nvfp4");
  EXPECT_EQ(refusal(KvFormat::nvfp4, 72),
            "--kv-cache-dtype nvfp4: expected a head size that is a multiple of 16, found 72; this "
            "model's keys and values can be kept as auto, bf16, fp8");
  config.layers = {LayerKind::delta_net};
  EXPECT_EQ(refusal(KvFormat::nvfp4, 72), "") << "there are no keys";
}

TEST(KvCodecTest, KeepsWhatTheFormatHolds) {
  const auto kept = [](KvFormat format, std::vector<float> line) {
    kv_keep(format, KvSide::keys, line, line.data());
    return line;
  };
  using Line = std::vector<float>;
  EXPECT_EQ(kept(KvFormat::f32, {1.1F, -3.0F}), (Line{1.1F, -3.0F}));
  EXPECT_EQ(kept(KvFormat::bf16, {1.0F + 0x1p-9F, 1.0F + 0x3p-8F}),  // the first a tie, to even
            (Line{1.0F, 1.0F + 0x1p-6F}));
  EXPECT_EQ(kept(KvFormat::fp8, {1.0F + 0x1p-4F, 17.5F, 500.0F}), (Line{1.0F, 18.0F, 448.0F}));
}

/// The 64 lines of a head: numbers of all, then scales of all.
struct Lines {
  static constexpr int64_t kDim = 16;
  KvFormat format;
  KvSide side;
  std::vector<std::byte> bytes =
      std::vector<std::byte>(static_cast<size_t>(kPageTokens * kv_line_bytes(format, side, kDim)));

  void put(int64_t slot, const std::vector<float>& line) {
    kv_store(format, side, line,
             {.codes = bytes.data() + slot * kv_code_bytes(format, kDim),
              .scales = bytes.data() + kPageTokens * kv_code_bytes(format, kDim) +
                        slot * kv_scale_bytes(format, side, kDim)});
  }
  bool finite() const { return kv_finite(format, side, bytes, kDim); }
};

TEST(KvCodecTest, FindsNumbersThatAreNone) {
  for (const KvFormat format : kFormats)
    for (const KvSide side : kSides)
      for (const float bad :
           {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
        if (format == KvFormat::fp8 && std::isinf(bad)) continue;  // becomes the largest
        Lines lines{format, side};
        std::vector<float> line(Lines::kDim, 0.5F);
        line[3] = -2.0F;
        lines.put(5, line);
        EXPECT_TRUE(lines.finite()) << kv_traits(format).name;
        line[9] = bad;
        lines.put(63, line);
        EXPECT_FALSE(lines.finite()) << kv_traits(format).name << ", " << bad;
      }
}

TEST(KvCodecTest, StridesChangeTheNumbersPlacesAlone) {
  constexpr int64_t kStride = 3;
  std::vector<float> line(32);
  for (size_t i = 0; i < line.size(); ++i) line[i] = std::sin(static_cast<float>(i));
  for (const KvFormat format : kFormats)
    for (const KvSide side : kSides) {
      std::vector<std::byte> dense(static_cast<size_t>(kv_line_bytes(format, side, 32)));
      std::vector<std::byte> apart(kStride * dense.size());
      const int64_t codes = kv_code_bytes(format, 32);
      const int64_t unit = std::max(1, kv_line(format, side).element_bits / 8);
      const bool groups = kv_line(format, side).scale_group > 0;
      kv_store(format, side, line, {.codes = dense.data(), .scales = dense.data() + codes});
      kv_store(format, side, line,
               {.codes = apart.data(),
                .code_stride = kStride,
                .scales = apart.data() + kStride * codes,
                .scale_stride = kStride});
      for (int64_t i = 0; i < static_cast<int64_t>(dense.size()); ++i) {
        const int64_t at = i < codes ? i / unit * unit * kStride + i % unit
                                     : kStride * codes + (i - codes) * (groups ? kStride : 1);
        EXPECT_EQ(apart[static_cast<size_t>(at)], dense[static_cast<size_t>(i)])
            << kv_traits(format).name << ", byte " << i;
      }
    }
}

}  // namespace
}  // namespace nibble
