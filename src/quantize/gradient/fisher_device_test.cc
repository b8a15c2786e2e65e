// The sweep by a device: the same weights as the CPU's own sweep, whatever groups and passes the
// device has; told of and stopped likewise. The device here computes on the CPU.
#include "quantize/gradient/fisher_device.h"

#include <gtest/gtest.h>

#include <numeric>

#include "quantize/gradient/stretches.h"
#include "quantize/testing/cpu_gradient_device.h"
#include "quantize/testing/golden_samples.h"

namespace nibble {
namespace {

class FisherDevice : public testing::Test {
 protected:
  FisherRequest request(GradientDevice* device, const LayerWatch& watch = {}) const {
    return {.weights = model_.weights,
            .config = model_.config,
            .samples = samples_,
            .wants = [](const std::string& module) { return !module.ends_with("k_proj"); },
            .options = {.label_draws = 2, .seed = 5, .threads = 1},
            .device = device,
            .watch = watch};
  }

  Golden model_ = load_golden("model/moe-fused");
  LayerSamples samples_ = test::golden_samples(model_);
};

TEST_F(FisherDevice, GivesTheWeightsOfTheCpuInAnyGroupsAndPasses) {
  const FisherWeights expected = gather_fisher_weights(request(nullptr)).value();
  const int64_t tokens = std::reduce(samples_.lengths.begin(), samples_.lengths.end());
  const int64_t longest = *std::ranges::max_element(samples_.lengths);
  int groups = 0, passes = 0;
  for (const PassLimits& limits :
       {PassLimits{.rows = tokens, .sequences = 100}, PassLimits{.rows = 1, .sequences = 100},
        PassLimits{.rows = tokens, .sequences = 1}})
    for (const int64_t group : {tokens, longest}) {
      test::CpuGradientDevice device(model_.weights, model_.config, samples_.hidden, group, limits);
      int64_t rows = 0;
      const FisherWeights found =
          gather_fisher_weights(request(&device, {.rows_done = [&](int64_t more) {
            rows += more;
          }})).value();
      EXPECT_EQ(rows, fisher_rows(tokens, model_.config));
      ASSERT_EQ(found.size(), expected.size());
      for (const auto& [module, weights] : expected) {
        EXPECT_EQ(found.at(module).tokens, weights.tokens) << module;
        EXPECT_EQ(found.at(module).weights, weights.weights) << module;
      }
      groups = std::max(groups, device.groups);
      passes = std::max(passes, *device.passes);
    }
  EXPECT_GT(groups, 1);
  EXPECT_GE(passes, static_cast<int>(samples_.lengths.size()) * model_.config.layer_count());
}

TEST_F(FisherDevice, StopsWhenAsked) {
  test::CpuGradientDevice device(model_.weights, model_.config, samples_.hidden, 1 << 20,
                                 {.rows = 64, .sequences = 4});
  int asked = 0;
  const auto stopped = gather_fisher_weights(request(&device, {.check = [&]() -> Result<void> {
    if (++asked < 3) return {};
    return Error{ErrorCode::cancelled, "stop"};
  }}));
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, ErrorCode::cancelled);
  EXPECT_EQ(*device.passes, 3);
}

TEST(Stretches, KeepBothLimitsAndCutNoSample) {
  const std::vector<int64_t> lengths = {3, 4, 9, 1, 1, 1};
  const auto found = gradient::stretches_of(lengths, 10, {.rows = 8, .samples = 2});
  std::vector<std::pair<int64_t, int64_t>> seen;  // first token, rows
  for (const auto& stretch : found) seen.emplace_back(stretch.first_token, stretch.rows());
  EXPECT_EQ(seen, (std::vector<std::pair<int64_t, int64_t>>{{10, 7}, {17, 9}, {26, 2}, {28, 1}}));
  const auto again = gradient::stretches_of(found[0], {.rows = 1});
  ASSERT_EQ(again.size(), 2U);
  EXPECT_EQ(again[1].first_token, 13);
  EXPECT_EQ(again[1].samples[0].begin, 0);
}

}  // namespace
}  // namespace nibble
