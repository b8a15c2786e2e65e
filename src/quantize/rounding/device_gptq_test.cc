// GPTQ by a device: the same bytes and the same sums of errors as the CPU's, however many rows come
// at once and whatever threads there are. The device is the CPU here; a card is held against it by
// bench/cuda/gptq_check.cc and calibrate/gptq_cuda_test.cc.
#include "quantize/rounding/device_gptq.h"

#include <gtest/gtest.h>

#include "quantize/rounding/fp8_round.h"
#include "quantize/rounding/rounding_cases.h"
#include "quantize/rounding/row_rounders.h"
#include "quantize/testing/cpu_gptq_device.h"
#include "tensor/fp8.h"

namespace nibble {
namespace {

constexpr int64_t kCols = 16 * 8, kRows = 300;
constexpr int64_t kTokens = 512;  // a power of two: exact however it is divided by

class DeviceGptq : public ::testing::Test {
 protected:
  RoundingRequest request(GptqDevice* device) const {
    return {.algorithm = RoundAlgorithm::gptq,
            .cols = kCols,
            .statistics = &statistics_,
            .path = best_round_path(),
            .device = device};
  }

  InputStatistics statistics_ =
      test::gather(test::draw_inputs(kTokens, kCols, 8), kCols, SecondMoment::full);
  test::CpuGptqDevice device_;
};

void expect_equal(const RoundStatistics& a, const RoundStatistics& b, std::string_view where) {
  EXPECT_EQ(a.weight_squares, b.weight_squares) << where;
  EXPECT_EQ(a.error_squares, b.error_squares) << where;
  EXPECT_EQ(a.amax_error_squares, b.amax_error_squares) << where;
  EXPECT_EQ(a.zero_blocks, b.zero_blocks) << where;
  EXPECT_EQ(a.flushed_blocks, b.flushed_blocks) << where;
}

struct Rounded {
  std::vector<uint8_t> codes = std::vector<uint8_t>(kRows * kCols / 2);
  std::vector<uint8_t> scales = std::vector<uint8_t>(kRows * kCols / 16);
  RoundStatistics statistics = {};
};

Rounded round_with(const Rounding& rounding, const std::vector<float>& weights, int threads) {
  Rounded out;
  ThreadPool pool(threads);
  out.statistics = rounding.rows->round_block(
      test::matrix_view(weights, kCols), test::exponent_of(weights), {out.codes, out.scales}, pool);
  return out;
}

TEST_F(DeviceGptq, GivesTheBytesAndSumsOfTheCpu) {
  const Rounding here = prepare_rounding(request(nullptr));
  const Rounding there = prepare_rounding(request(&device_));
  EXPECT_EQ(there.algorithm, RoundAlgorithm::gptq);
  EXPECT_EQ(device_.factorised, 1);
  for (const auto& family : test::weight_families()) {
    const auto weights = test::draw_weights(family, kCols * kRows, 4);
    const Rounded expected = round_with(here, weights, 1);
    for (const int threads : {1, 3}) {
      const Rounded found = round_with(there, weights, threads);
      EXPECT_EQ(found.codes, expected.codes) << family.name;
      EXPECT_EQ(found.scales, expected.scales) << family.name;
      expect_equal(found.statistics, expected.statistics, family.name);
    }
  }
}

/// Scales of rows and of bands of rows; the device's own test has tiles.
TEST_F(DeviceGptq, GivesTheFp8CodesAndErrorsOfTheCpuBandByBand) {
  const Fp8Rounding here = prepare_fp8_rounding(request(nullptr));
  const Fp8Rounding there = prepare_fp8_rounding(request(&device_));
  ASSERT_NE(there.gptq, nullptr);
  const auto weights = test::draw_weights(test::weight_families()[1], kCols * kRows, 4);
  const TensorView view = test::matrix_view(weights, kCols);
  const std::vector<float> bands = {0.01F, 0.02F, 0.04F};
  std::vector<float> rows(kRows);
  std::vector<uint8_t> unused(kCols * kRows);
  round_fp8_channels(view, unused, rows);
  ThreadPool one(1), three(3);
  for (const Fp8Scales& scales :
       {Fp8Scales{.values = rows, .per_row = 1},
        Fp8Scales{.values = bands, .per_tile = 1, .per_band = 1}, Fp8Scales{.values = bands}}) {
    std::vector<uint8_t> expected(unused.size()), found(unused.size());
    const auto errors = here.gptq->round_bands(view, scales, expected, one);
    EXPECT_EQ(there.gptq->round_bands(view, scales, found, three), errors);
    EXPECT_EQ(errors.size(), 3U);
    EXPECT_EQ(found, expected);
    // Bands have scales of their own: the second alone is as within the whole.
    std::vector<uint8_t> alone(kFp8Block * kCols);
    here.gptq->round(rows_of(view, kFp8Block, kFp8Block), scales.from_row(kFp8Block), alone);
    EXPECT_TRUE(
        std::ranges::equal(alone, std::span(expected).subspan(kFp8Block * kCols, alone.size())));
  }
}

TEST_F(DeviceGptq, TheCpuRoundsWhatTheDeviceDoesNotTake) {
  test::CpuGptqDevice small(kCols - 16);
  const Rounding rounding = prepare_rounding(request(&small));
  EXPECT_EQ(rounding.algorithm, RoundAlgorithm::gptq);
  EXPECT_NE(prepare_fp8_rounding(request(&small)).gptq, nullptr);
  EXPECT_EQ(small.factorised, 0);
}

TEST_F(DeviceGptq, WhatCannotBeFactorisedIsRoundedWithoutData) {
  statistics_.moment[1] = 100 * kTokens * mean_square(statistics_);
  const Rounding rounding = prepare_rounding(request(&device_));
  EXPECT_EQ(device_.factorised, 1);
  EXPECT_EQ(rounding.algorithm, RoundAlgorithm::search);
  EXPECT_EQ(rounding.fallback, "its second moment cannot be factorised");
  const Fp8Rounding fp8 = prepare_fp8_rounding(request(&device_));
  EXPECT_EQ(fp8.gptq, nullptr);
  EXPECT_EQ(fp8.fallback, rounding.fallback);
}

}  // namespace
}  // namespace nibble
