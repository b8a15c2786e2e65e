// The losses against a plain computation from what quantize() writes, and that no cut of the work
// leaves a trace.
#include "quantize/allocate/format_losses.h"

#include <gtest/gtest.h>

#include <limits>

#include "quantize/calibrate/embedded_samples.h"
#include "quantize/gradient/dense_linear.h"
#include "quantize/testing/calibration_runs.h"
#include "quantize/testing/test_runs.h"
#include "tensor/fp8.h"

namespace nibble {
namespace {

using gradient::DenseLinear;
using gradient::Rows;
using test::Layout;

/// Linears that are no part of a fused group, whose scales are their own.
constexpr const char* kAlone[] = {"lm_head", "model.language_model.layers.1.self_attn.o_proj",
                                  "model.language_model.layers.0.linear_attn.out_proj",
                                  "model.language_model.layers.1.mlp.experts.2.down_proj"};

TEST(FormatLossBytes, OfNothingThatIsRoundedAreNone) {
  EXPECT_EQ(format_loss_bytes(QuantPlan()), 0);
}

class Losses : public testing::Test {
 protected:
  Losses()
      : samples_(
            embedded_samples(*model_.checkpoint, model_.weights, model_.config, data_).value()) {}

  Result<FormatLosses> gather(const FisherOptions& options = {}, const LayerWatch& watch = {}) {
    return gather_format_losses({.weights = model_.weights,
                                 .config = model_.config,
                                 .samples = samples_,
                                 .wants =
                                     [](const std::string& module) {
                                       return module.find("in_proj_a") == std::string::npos;
                                     },
                                 .options = options,
                                 .watch = watch});
  }

  /// Mean over tokens of 1/2 (g . (W' f(x) - W x))^2, with W' the weights of a written checkpoint.
  double plain_loss(const std::string& module, const std::string& recipe_word, bool fp8) {
    const auto output = model_.folder / recipe_word;
    if (!std::filesystem::exists(output)) {
      const std::string words = fp8 ? "fp8\n    input_scale: 1\n" : "nvfp4\n";
      const std::string rules =
          concat("  - match: 're:.*(self_attn\\.[qkvo]_proj|in_proj_qkv|in_proj_z|out_proj|",
                 "(gate|up|down)_proj)$'\n    weights: ", words,
                 "  - match: lm_head\n    weights: ", words);
      const auto made = test::run(model_.folder / "m", output, {.recipe = test::recipe_of(rules)});
      EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
    }
    const test::Opened written(output);
    std::vector<float> weights;
    for (const auto& group : fused_linears(written.weights))
      for (const LinearSource* linear : group)
        if (linear->module == module) weights = test::decoded(written, *linear);
    double sum = 0;
    const auto seen = [&](const DenseLinear& linear, const Rows& x, const Rows& g,
                          std::span<const int32_t>) {
      if (linear.source().module != module) return;
      for (int64_t r = 0; r < x.count; ++r)
        sum += half_square(linear, weights, x.row(r), g.row(r), fp8);
    };
    EXPECT_TRUE(gather_fisher_weights({.weights = model_.weights,
                                       .config = model_.config,
                                       .samples = samples_,
                                       .wants = [](const std::string&) { return false; },
                                       .also_seen = seen})
                    .ok());
    return sum / static_cast<double>(data_.tokens());
  }

  static double half_square(const DenseLinear& linear, const std::vector<float>& weights,
                            const float* x, const float* g, bool fp8) {
    const int64_t cols = linear.source().cols;
    std::vector<float> given(x, x + cols);
    if (fp8) {
      float amax = 0;
      for (const float one : given) amax = std::max(amax, std::abs(one));
      std::vector<uint8_t> codes(static_cast<size_t>(cols));
      encode_fp8_row(x, fp8_scale(amax), cols, codes.data());
      decode_fp8_row(codes.data(), fp8_scale(amax), cols, given.data());
    }
    double product = 0;
    for (int64_t n = 0; n < linear.rows(); ++n) {
      double error = 0;
      for (int64_t k = 0; k < cols; ++k) {
        const auto at = static_cast<size_t>(n * cols + k);
        error +=
            static_cast<double>(weights[at]) * static_cast<double>(given[static_cast<size_t>(k)]) -
            static_cast<double>(linear.values()[at]) * static_cast<double>(x[k]);
      }
      product += static_cast<double>(g[n]) * error;
    }
    return product * product / 2;
  }

  test::Model model_{Layout::fused_experts};
  CalibrationData data_ = test::random_data();
  LayerSamples samples_;
};

TEST_F(Losses, AreThoseOfTheWeightsThatAreWritten) {
  const FormatLosses found = gather().value();
  for (const char* module : kAlone) {
    const FormatLoss& loss = found.at(module);
    const double four = plain_loss(module, "nvfp4", false), eight = plain_loss(module, "fp8", true);
    EXPECT_NEAR(loss.nvfp4, four, 1e-3 * four) << module;
    EXPECT_NEAR(loss.fp8, eight, 2e-3 * eight) << module;
    EXPECT_GT(loss.nvfp4, loss.fp8) << module;
  }
}

TEST_F(Losses, GroupsAndThreadsLeaveNoTrace) {
  const FormatLosses whole = gather({.label_draws = 2, .threads = 1}).value();
  const FormatLosses parts =
      gather({.label_draws = 2, .states_bytes_max = 1, .threads = 3}).value();
  ASSERT_EQ(whole.size(), parts.size());
  for (const auto& [module, loss] : whole) {
    EXPECT_NEAR(loss.nvfp4, parts.at(module).nvfp4, 1e-9 * loss.nvfp4) << module;
    EXPECT_NEAR(loss.fp8, parts.at(module).fp8, 1e-9 * loss.fp8) << module;
  }
  const FormatLosses again = gather({.label_draws = 2, .threads = 3}).value();
  for (const auto& [module, loss] : whole) {
    EXPECT_EQ(loss.nvfp4, again.at(module).nvfp4) << module;
    EXPECT_EQ(loss.fp8, again.at(module).fp8) << module;
  }
}

TEST_F(Losses, KnowOnlyWhatIsWanted) {
  const FormatLosses found = gather().value();
  EXPECT_FALSE(found.contains("model.language_model.layers.0.linear_attn.in_proj_a"));
  EXPECT_TRUE(found.contains("model.language_model.layers.0.linear_attn.in_proj_b"));
}

TEST_F(Losses, StopWhenAsked) {
  const auto stopped = gather({}, {.check = []() -> Result<void> {
                                return Error{ErrorCode::cancelled, "stop"};
                              }});
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, ErrorCode::cancelled);
}

TEST(LossesOfBrokenWeights, AreRefusedByName) {
  const std::string broken = "model.language_model.layers.1.self_attn.o_proj";
  test::Model model(Layout::fused_experts, [&](const std::string& tensor, int64_t index, float w) {
    return tensor == broken + ".weight" && index == 5 ? std::numeric_limits<float>::infinity() : w;
  });
  const CalibrationData data = test::random_data();
  const LayerSamples samples =
      embedded_samples(*model.checkpoint, model.weights, model.config, data).value();
  const auto found = gather_format_losses({.weights = model.weights,
                                           .config = model.config,
                                           .samples = samples,
                                           .wants = [](const std::string&) { return true; }});
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::corrupt);
}

}  // namespace
}  // namespace nibble
