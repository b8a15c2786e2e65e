// Formats that are sound and ones with mistakes planted into what is read of them; intervals,
// limits and the choice among findings.
#include "eval/kv_verdict.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "model/kv_four_bits.h"

namespace nibble {
namespace {

constexpr KvFormat kFormats[] = {KvFormat::f32, KvFormat::bf16, KvFormat::fp8,
                                 KvFormat::turboquant_4bit_nc, KvFormat::nvfp4};
static_assert(std::size(kFormats) == kKvFormats);
constexpr KvLimits kLimits = {.points = 1.0, .kl = 0.05};

TEST(KvVerdictTest, SoundFormatsHaveTheErrorsOfTheirDefinitions) {
  for (const KvFormat format : kFormats)
    for (const int64_t head_dim : {64, 128, 256})
      EXPECT_EQ(kv_format_fault(format, measure_kv_format(format, head_dim)), "")
          << kv_traits(format).name << ", " << head_dim;
  const KvFormatErrors turboquant = measure_kv_format(KvFormat::turboquant_4bit_nc, 256);
  EXPECT_NEAR(turboquant.keys, 0.0975, 0.002);
  EXPECT_LT(turboquant.key_norm, 6e-4);
  EXPECT_NEAR(measure_kv_format(KvFormat::nvfp4, 256).values, 0.095, 0.003);
  EXPECT_NEAR(measure_kv_format(KvFormat::fp8, 256).keys, 0.026, 0.003);
}

/// A line as it is stored.
struct StoredLine {
  std::vector<std::byte> bytes;
  KvLinePlace place;
  StoredLine(KvFormat format, KvSide side, std::span<const float> line)
      : bytes(static_cast<size_t>(kv_line_bytes(format, side, std::ssize(line)))) {
    place = {.codes = bytes.data(),
             .scales = bytes.data() + kv_code_bytes(format, std::ssize(line))};
    kv_store(format, side, line, place);
  }
};

/// Values are read with the scales of the group beside theirs (as in vLLM's issue 50084, where they
/// were written in another order than they were read).
void keep_with_permuted_scales(KvFormat format, KvSide side, std::span<const float> line,
                               float* to) {
  StoredLine stored(format, side, line);
  const auto groups = line.size() / 16;
  if (side == KvSide::values)
    std::rotate(stored.place.scales, stored.place.scales + 1, stored.place.scales + groups);
  kv_nvfp4::load(stored.place, {to, line.size()});
}

/// Keys are read with their norm alone: n c / sqrt(size) in place of n c / |c|.
void keep_without_norm_correction(KvFormat format, KvSide side, std::span<const float> line,
                                  float* to) {
  kv_keep(format, side, line, to);
  if (side == KvSide::values) return;
  const StoredLine stored(format, side, line);
  double squares = 0.0;
  for (size_t i = 0; i < line.size(); ++i) {
    const auto pair = static_cast<unsigned>(stored.bytes[i / 2]);
    const double centroid = kKvCentroids[pair >> 4 * (i % 2) & 15U];
    squares += centroid * centroid;
  }
  const double correction = std::sqrt(squares / static_cast<double>(line.size()));
  for (size_t i = 0; i < line.size(); ++i) to[i] = static_cast<float>(to[i] * correction);
}

TEST(KvVerdictTest, PlantedFaultsAreFaulty) {
  const auto judged = [](KvFormat format, const KvKeep& keep) {
    return judge_kv({.format = format, .errors = measure_kv_format(format, 64, keep)}, kLimits);
  };
  EXPECT_EQ(judged(KvFormat::nvfp4, kv_keep).verdict, KvVerdict::harmless);
  const KvJudgement permuted = judged(KvFormat::nvfp4, keep_with_permuted_scales);
  EXPECT_EQ(permuted.verdict, KvVerdict::faulty);
  EXPECT_TRUE(permuted.why.starts_with("relative error of values 0.")) << permuted.why;
  EXPECT_EQ(judged(KvFormat::turboquant_4bit_nc, kv_keep).verdict, KvVerdict::harmless);
  const KvJudgement uncorrected =
      judged(KvFormat::turboquant_4bit_nc, keep_without_norm_correction);
  EXPECT_EQ(uncorrected.verdict, KvVerdict::faulty);
  EXPECT_TRUE(uncorrected.why.starts_with("change of a key's norm 0.")) << uncorrected.why;
  KvFinding unread{.format = KvFormat::fp8, .errors = {.keys = std::nan("")}};
  EXPECT_EQ(judge_kv(unread, kLimits).verdict, KvVerdict::faulty);
}

KvTask task(const char* name, int64_t pairs, int64_t gained, int64_t lost) {
  return {.name = name,
          .right = pairs - lost,
          .scored = pairs,
          .difference = paired_difference({.pairs = pairs, .gained = gained, .lost = lost})};
}

TEST(KvVerdictTest, LostTasksAreHarm) {
  const auto verdict_of = [](std::vector<KvTask> tasks) {
    const KvFinding finding{.format = KvFormat::fp8,
                            .errors = measure_kv_format(KvFormat::fp8, 64),
                            .tasks = std::move(tasks)};
    return judge_kv(finding, kLimits);
  };
  EXPECT_EQ(verdict_of({task("add", 100, 0, 0), task("all", 100, 0, 0)}).verdict,
            KvVerdict::harmless);
  EXPECT_EQ(verdict_of({task("add", 300, 1, 4), task("all", 300, 1, 4)}).verdict,
            KvVerdict::harmless)
      << "chance explains 1 point";
  const KvJudgement one = verdict_of({task("add", 100, 0, 9), task("all", 1000, 3, 9)});
  EXPECT_EQ(one.verdict, KvVerdict::harmful);
  EXPECT_NE(one.why.find("add loses 9 points"), std::string::npos) << one.why;
  const KvJudgement all = verdict_of({task("all", 100, 0, 2)});
  EXPECT_EQ(all.verdict, KvVerdict::harmful);
  EXPECT_NE(all.why.find("loses 2 points, more than 1"), std::string::npos) << all.why;
}

TEST(KvVerdictTest, DivergenceByPositionHasIntervals) {
  KlByPosition positions;
  for (size_t sequence = 0; sequence < 4; ++sequence)
    for (size_t row = 0; row < 300; ++row)
      positions.add(sequence, row, row < 256 ? 0.01 : static_cast<double>(sequence));
  positions.add(0, 5000, 7.0);
  const auto found = positions.summary();
  ASSERT_EQ(found.size(), 3U);  // positions 1,024 to 4,095 have no rows
  EXPECT_EQ(found[0].end, 256);
  EXPECT_EQ(found[0].rows, 4 * 256);
  EXPECT_NEAR(found[0].mean, 0.01, 1e-12);
  EXPECT_NEAR(found[0].interval.high - found[0].interval.low, 0.0, 1e-12);
  EXPECT_EQ(found[1].begin, 256);
  EXPECT_EQ(found[1].end, 1024);
  EXPECT_DOUBLE_EQ(found[1].mean, 1.5);
  // Means of 0, 1, 2, 3 by sequence: the standard error of a mean of four, sqrt(5 / 12).
  EXPECT_NEAR(found[1].interval.high, 1.5 + 1.96 * std::sqrt(5.0 / 3.0 / 4.0), 1e-9);
  EXPECT_EQ(found[2].begin, 4096);
  EXPECT_EQ(found[2].sequences, 1);
  EXPECT_EQ(found[2].interval.low, 0.0);
  EXPECT_TRUE(std::isinf(found[2].interval.high));
}

TEST(KvVerdictTest, TheSmallestHarmlessFormatIsRecommended) {
  const auto finding = [](KvFormat format, int64_t bytes, double kl) {
    return KvFinding{.format = format,
                     .token_bytes = bytes,
                     .errors = measure_kv_format(format, 64),
                     .kl = {{.end = 256, .rows = 9, .mean = kl, .interval = {kl, kl}}}};
  };
  std::vector<KvFinding> findings = {finding(KvFormat::fp8, 100, 0.001),
                                     finding(KvFormat::turboquant_4bit_nc, 51, 0.06),
                                     finding(KvFormat::nvfp4, 56, 0.04)};
  ASSERT_NE(recommended_kv(findings, kLimits), nullptr);
  EXPECT_EQ(recommended_kv(findings, kLimits)->format, KvFormat::nvfp4);
  EXPECT_EQ(judge_kv(findings[1], kLimits).verdict, KvVerdict::harmful);
  EXPECT_EQ(recommended_kv({findings[1]}, kLimits), nullptr);
}

}  // namespace
}  // namespace nibble
