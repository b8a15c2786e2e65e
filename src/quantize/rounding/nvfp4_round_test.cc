// The window search against the exhaustive one, every instruction set against every other, and the
// cases where blocks are not ordinary: ties, zeros, tiny, huge.
#include "quantize/rounding/nvfp4_round.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "tensor/nvfp4.h"

namespace nibble {
namespace {

constexpr int kBlock = 16;

struct Rounded {
  std::vector<uint8_t> codes, scales;
  RoundStatistics statistics;
};

Rounded round_floats(const std::vector<float>& weights, int64_t cols, const RoundRequest& request) {
  const auto rows = static_cast<int64_t>(weights.size()) / cols;
  Rounded out{.codes = std::vector<uint8_t>(weights.size() / 2),
              .scales = std::vector<uint8_t>(weights.size() / kBlock)};
  const TensorView view{reinterpret_cast<const std::byte*>(weights.data()), DType::f32,
                        Shape{rows, cols}};
  out.statistics = round_nvfp4_rows(view, request, out.codes, out.scales);
  return out;
}

float amax_of(const std::vector<float>& weights) {
  return largest_magnitude(reinterpret_cast<const std::byte*>(weights.data()), DType::f32,
                           static_cast<int64_t>(weights.size()));
}

/// Squared error of a block (already over the global scale) under one scale code, weight by weight,
/// as the header defines it: F32, on the 20 leading significant bits of each weight.
float block_error(const float* u, int code) {
  const float scale = e4m3_to_float(static_cast<uint8_t>(code));
  float total = 0;
  for (int i = 0; i < kBlock; ++i) {
    const float magnitude =
        std::bit_cast<float>(std::bit_cast<uint32_t>(std::fabs(u[i])) & 0xFFFFFFF0U);
    const float q = e2m1_to_float(float_to_e2m1(magnitude / scale));
    const float error = magnitude - q * scale;
    total += error * error;
  }
  return total;
}

/// All 126 positive codes; the lowest of the best.
int exhaustive_scale(const float* u) {
  int best = 1;
  float least = std::numeric_limits<float>::infinity();
  for (int code = 1; code <= 126; ++code) {
    const float error = block_error(u, code);
    if (error >= least) continue;
    least = error;
    best = code;
  }
  return best;
}

/// The truth for one matrix: exhaustive scales, codes by the scalar codec, zero without a sign.
Rounded exhaustive(const std::vector<float>& weights, int exponent) {
  Rounded out{.codes = std::vector<uint8_t>(weights.size() / 2),
              .scales = std::vector<uint8_t>(weights.size() / kBlock)};
  for (size_t block = 0; block < out.scales.size(); ++block) {
    float u[kBlock];
    bool zero = true;
    for (int i = 0; i < kBlock; ++i) {
      u[i] = std::ldexp(weights[block * kBlock + static_cast<size_t>(i)], -exponent);
      zero = zero && u[i] == 0.0F;
    }
    const auto scale = zero ? kZeroBlockScale : static_cast<uint8_t>(exhaustive_scale(u));
    uint8_t* codes = &out.codes[block * 8];
    encode_nvfp4_block(u, scale, GlobalScale{}, codes);
    for (int j = 0; j < 8; ++j) {
      if ((codes[j] & 0x0FU) == 0x08U) codes[j] &= 0xF0U;
      if ((codes[j] & 0xF0U) == 0x80U) codes[j] &= 0x0FU;
    }
    out.scales[block] = scale;
  }
  return out;
}

using Generator = std::mt19937_64;
struct Family {
  const char* name;
  std::function<float(Generator&)> weight;
};

float gaussian(Generator& random) { return std::normal_distribution<float>(0, 0.03F)(random); }
float heavy(Generator& random) { return std::student_t_distribution<float>(3)(random); }

/// Weight families, drawn one by one. Rounded to BF16 as real weights are, but for "f32".
const std::vector<Family>& families() {
  static const std::vector<Family> kFamilies = {
      {"gaussian", gaussian},
      {"heavy tail", heavy},
      {"f32", [](Generator& g) { return gaussian(g) * 1.000001F; }},
      {"sparse", [](Generator& g) { return g() % 8 == 0 ? heavy(g) : 0.0F; }},
      {"grid", [](Generator& g) { return kE2m1Values[g() % 8] * (g() % 2 == 0 ? 1.0F : -0.5F); }},
      {"ties", [](Generator& g) { return static_cast<float>(g() % 49) * 0.125F; }},
      {"two levels", [](Generator& g) { return g() % 16 == 0 ? 1.0F : 0x1p-12F; }},
      {"wide", [](Generator& g) { return std::ldexp(gaussian(g), -static_cast<int>(g() % 24)); }},
      {"tiny", [](Generator& g) { return gaussian(g) * 0x1p-126F; }},
      {"huge", [](Generator& g) { return gaussian(g) * 0x1p125F; }},
      {"zero", [](Generator& g) { return g() % 2 == 0 ? 0.0F : -0.0F; }},
  };
  return kFamilies;
}

std::vector<float> draw(const Family& family, size_t count, uint64_t seed) {
  Generator random(seed);
  std::vector<float> weights(count);
  const bool keep = family.name == std::string_view("f32");
  for (float& w : weights) w = keep ? family.weight(random) : round_to_bf16(family.weight(random));
  return weights;
}

TEST(NvFp4Round, WindowEqualsExhaustiveSearch) {
  for (const auto& family : families()) {
    const auto weights = draw(family, size_t{16} * 6000, 1);
    const int exponent = global_exponent(amax_of(weights));
    const Rounded expected = exhaustive(weights, exponent);
    const Rounded found = round_floats(weights, 16 * 60, {.exponent = exponent});
    EXPECT_EQ(found.scales, expected.scales) << family.name;
    EXPECT_EQ(found.codes, expected.codes) << family.name;
  }
}

TEST(NvFp4Round, WindowEqualsExhaustiveSearchForRescaledBlocks) {
  // One block moved through every binade of block scales, with a large weight elsewhere that holds
  // the global scale: subnormal codes, the codes around 16, the saturated top.
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const auto block = draw(families()[seed % families().size()], kBlock, seed);
    for (int shift = -30; shift <= 1; ++shift) {
      std::vector<float> weights(2 * kBlock, 0.0F);
      weights[kBlock] = 1568.0F;  // 3.5 * 448: exponent 0
      const float amax = amax_of(block);
      if (amax == 0.0F) continue;
      int binade = 0;
      std::frexp(amax, &binade);
      for (int i = 0; i < kBlock; ++i)
        weights[static_cast<size_t>(i)] =
            std::ldexp(block[static_cast<size_t>(i)], 9 + shift - binade);
      ASSERT_EQ(global_exponent(amax_of(weights)), 0);
      const Rounded expected = exhaustive(weights, 0);
      const Rounded found = round_floats(weights, 2 * kBlock, {});
      ASSERT_EQ(found.scales, expected.scales) << "seed " << seed << " shift " << shift;
      ASSERT_EQ(found.codes, expected.codes) << "seed " << seed << " shift " << shift;
    }
  }
}

TEST(NvFp4Round, EveryPathGivesTheSameBytes) {
  for (const auto& family : families()) {
    const auto weights = draw(family, size_t{16} * 3000, 2);
    RoundRequest request{.exponent = global_exponent(amax_of(weights))};
    for (const auto algorithm : {RoundAlgorithm::search, RoundAlgorithm::amax}) {
      request.algorithm = algorithm;
      request.path = RoundPath::portable;
      const Rounded truth = round_floats(weights, 480, request);
      for (const auto path : {RoundPath::avx2, RoundPath::avx512}) {
        if (!round_path_available(path)) continue;
        request.path = path;
        const Rounded found = round_floats(weights, 480, request);
        EXPECT_EQ(found.codes, truth.codes) << family.name << round_path_name(path);
        EXPECT_EQ(found.scales, truth.scales) << family.name << round_path_name(path);
        EXPECT_EQ(found.statistics.error_squares, truth.statistics.error_squares);
        EXPECT_EQ(found.statistics.weight_squares, truth.statistics.weight_squares);
      }
    }
  }
}

TEST(NvFp4Round, SourceTypesAgree) {
  const auto weights = draw(families()[0], 16 * 100, 3);  // BF16 values of F16 range
  std::vector<uint16_t> bf16, f16;
  for (const float w : weights) {
    bf16.push_back(float_to_bf16(w));
    f16.push_back(float_to_f16(w));
  }
  const RoundRequest request{.exponent = global_exponent(amax_of(weights))};
  const Rounded truth = round_floats(weights, 160, request);
  for (const auto dtype : {DType::bf16, DType::f16}) {
    const auto* bytes =
        reinterpret_cast<const std::byte*>(dtype == DType::bf16 ? bf16.data() : f16.data());
    EXPECT_EQ(largest_magnitude(bytes, dtype, 1600), amax_of(weights));
    Rounded found{.codes = std::vector<uint8_t>(800), .scales = std::vector<uint8_t>(100)};
    round_nvfp4_rows({bytes, dtype, Shape{10, 160}}, request, found.codes, found.scales);
    EXPECT_EQ(found.codes, truth.codes);
    EXPECT_EQ(found.scales, truth.scales);
  }
}

TEST(NvFp4Round, AmaxIsTheNearestScaleToAmaxOverSix) {
  for (const auto& family : families()) {
    const auto weights = draw(family, size_t{16} * 2000, 4);
    const int exponent = global_exponent(amax_of(weights));
    const GlobalScale global = power_of_two_global(exponent, GlobalScale::Direction::divide);
    const Rounded found =
        round_floats(weights, 160, {.exponent = exponent, .algorithm = RoundAlgorithm::amax});
    for (size_t block = 0; block < found.scales.size(); ++block) {
      const std::vector<float> sixteen(weights.begin() + static_cast<long>(block * 16),
                                       weights.begin() + static_cast<long>(block * 16 + 16));
      const float amax = amax_of(sixteen);
      if (amax == 0.0F) continue;
      const uint8_t plain =
          float_to_e4m3(std::ldexp(amax, -exponent) / 6.0F);  // e4m3 of the exact u-space amax/6
      EXPECT_EQ(found.scales[block], plain == 0 ? 1 : plain) << family.name;
      if (plain != 0) {
        EXPECT_EQ(plain, nvfp4_amax_scale(amax, global, SourceType::f32)) << family.name;
      }
    }
  }
}

TEST(NvFp4Round, StatisticsAreTheTrueErrors) {
  for (const auto& family : families()) {
    const auto weights = draw(family, size_t{16} * 500, 5);
    const int exponent = global_exponent(amax_of(weights));
    const GlobalScale global = power_of_two_global(exponent, GlobalScale::Direction::multiply);
    const Rounded best = round_floats(weights, 16 * 50, {.exponent = exponent});
    const Rounded plain =
        round_floats(weights, 16 * 50, {.exponent = exponent, .algorithm = RoundAlgorithm::amax});
    std::vector<float> decoded(weights.size());
    decode_nvfp4_row(best.codes.data(), best.scales.data(), global,
                     static_cast<int64_t>(weights.size()), decoded.data());
    double error = 0, square = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      const double d = static_cast<double>(weights[i]) - static_cast<double>(decoded[i]);
      error += d * d;
      square += static_cast<double>(weights[i]) * static_cast<double>(weights[i]);
    }
    EXPECT_NEAR(best.statistics.error_squares, error, 1e-5 * error) << family.name;
    EXPECT_NEAR(best.statistics.weight_squares, square, 1e-5 * square) << family.name;
    EXPECT_EQ(best.statistics.amax_error_squares, plain.statistics.error_squares) << family.name;
    EXPECT_LE(best.statistics.error_squares, plain.statistics.error_squares) << family.name;
  }
}

TEST(NvFp4Round, SearchRemovesAQuarterOfTheErrorOnGaussianWeights) {
  const auto weights = draw(families()[0], size_t{16} * 20000, 6);
  const auto s =
      round_floats(weights, 16 * 200, {.exponent = global_exponent(amax_of(weights))}).statistics;
  EXPECT_NEAR(s.error_squares / s.weight_squares, 6.59e-3, 0.05e-3);
  EXPECT_NEAR(s.amax_error_squares / s.weight_squares, 9.04e-3, 0.08e-3);
}

TEST(NvFp4Round, DecodedWeightsAreExactInBf16AndInBothDirections) {
  const auto weights = draw(families()[1], size_t{16} * 2000, 7);
  const int exponent = global_exponent(amax_of(weights));
  const Rounded found = round_floats(weights, 16 * 20, {.exponent = exponent});
  std::vector<float> multiplied(weights.size()), divided(weights.size());
  const auto count = static_cast<int64_t>(weights.size());
  decode_nvfp4_row(found.codes.data(), found.scales.data(),
                   power_of_two_global(exponent, GlobalScale::Direction::multiply), count,
                   multiplied.data());
  decode_nvfp4_row(found.codes.data(), found.scales.data(),
                   power_of_two_global(exponent, GlobalScale::Direction::divide), count,
                   divided.data());
  EXPECT_EQ(multiplied, divided);
  for (const float w : multiplied) ASSERT_EQ(w, round_to_bf16(w));
}

TEST(NvFp4Round, TheExampleOfTheDocuments) {  // docs/formats.md, section 2
  const float weights[kBlock] = {0.1F,  -0.05F, 0.2F,   0.025F, -0.3F, 0.07F,  0.0F,  -0.01F,
                                 0.15F, 0.4F,   -0.12F, 0.03F,  0.6F,  -0.22F, 0.09F, 0.5F};
  std::vector<float> row;
  for (const float w : weights) row.push_back(round_to_bf16(w));
  ASSERT_EQ(global_exponent(amax_of(row)), -11);
  const Rounded found = round_floats(row, kBlock, {.exponent = -11});
  EXPECT_EQ(found.scales, (std::vector<uint8_t>{0x74}));
  EXPECT_EQ(found.codes, (std::vector<uint8_t>{0x92, 0x14, 0x1d, 0x00, 0x63, 0x1b, 0xc7, 0x72}));
}

TEST(NvFp4Round, GlobalExponentLeavesRoomForTheSearch) {
  EXPECT_EQ(global_exponent(0.0F), 0);
  EXPECT_EQ(global_exponent(1568.0F), 0);
  EXPECT_EQ(global_exponent(std::nextafter(1568.0F, 2000.0F)), 1);
  EXPECT_EQ(global_exponent(784.0F), -1);
  EXPECT_EQ(global_exponent(0x1p-149F), -126);
  EXPECT_EQ(global_exponent(kWeightMax), 117);
  for (float amax = 0x1p-110F; amax < 0x1p127F; amax *= 1.37F) {
    const float ratio = std::ldexp(amax, -global_exponent(amax));
    EXPECT_LE(ratio, 1568.0F);
    EXPECT_GT(ratio, 784.0F);
  }
}

TEST(NvFp4Round, ZeroAndFlushedBlocksAreCounted) {
  std::vector<float> weights(3 * kBlock, 0.0F);
  weights[0] = 1568.0F;
  weights[kBlock + 3] = -0x1p-12F;  // under half the least product 2^-9 * 0.5
  const Rounded found = round_floats(weights, 3 * kBlock, {});
  EXPECT_EQ(found.statistics.zero_blocks, 1);
  EXPECT_EQ(found.statistics.flushed_blocks, 1);
  EXPECT_EQ(found.scales[1], 1);
  EXPECT_EQ(found.scales[2], kZeroBlockScale);
  for (size_t i = 8; i < 24; ++i) EXPECT_EQ(found.codes[i], 0);
}

TEST(NvFp4Round, HugeWeightsStayFinite) {
  std::vector<float> weights(kBlock, kWeightMax);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] /= static_cast<float>(1 + i % 5);
  const int exponent = global_exponent(kWeightMax);
  const Rounded found = round_floats(weights, kBlock, {.exponent = exponent});
  std::vector<float> decoded(kBlock);
  decode_nvfp4_row(found.codes.data(), found.scales.data(),
                   power_of_two_global(exponent, GlobalScale::Direction::multiply), kBlock,
                   decoded.data());
  for (const float w : decoded) EXPECT_TRUE(std::isfinite(w));
}

TEST(NvFp4Round, LargestMagnitudeShowsNanAndInfinity) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(amax_of({1.0F, -3.0F, 2.0F}), 3.0F);
  EXPECT_EQ(amax_of({1.0F, -infinity}), infinity);
  EXPECT_TRUE(std::isnan(amax_of({1.0F, -nan, infinity})));
  const uint16_t bf16[] = {0x3F80, 0xFF81};  // 1, a negative signalling NaN
  EXPECT_TRUE(
      std::isnan(largest_magnitude(reinterpret_cast<const std::byte*>(bf16), DType::bf16, 2)));
}

}  // namespace
}  // namespace nibble
