// Linears of one fused group share a scale. With weights of tokens each has sums of its own, and is
// rounded by these.
#include <gtest/gtest.h>

#include <algorithm>

#include "quantize/rounding/rounding.h"
#include "quantize/rounding/rounding_cases.h"
#include "quantize/testing/calibration_runs.h"
#include "quantize/testing/test_runs.h"

namespace nibble {
namespace {

Calibration start(const test::Model& model, const CalibrationData& data) {
  CalibrationOptions options = test::options(SecondMoment::full);
  options.fisher = FisherOptions{};
  return Calibration::start(*model.checkpoint, model.weights, model.config, data,
                            std::move(options))
      .value();
}

TEST(OwnSums, EachLinearOfAGroupIsRoundedByItsOwn) {
  const test::Model model(test::Layout::fused_experts);
  const CalibrationData data = test::random_data();
  Calibration calibration = start(model, data);
  test::Asked asked;
  asked.options.algorithm = RoundAlgorithm::gptq;
  asked.options.threads = 1;
  asked.options.calibration = &calibration;
  ASSERT_TRUE(test::run(model.folder / "m", model.folder / "out", asked).ok());
  const test::Opened source(model.folder / "m"), made(model.folder / "out");
  Calibration again = start(model, data);
  int compared = 0;
  for (int part = 0; part < again.parts(); ++part) {
    ASSERT_TRUE(again.run(part).ok());
    for (size_t i = 0; i < source.weights.layers().size(); ++i) {
      const AttentionSources& a = source.weights.layers()[i].attention;
      const AttentionSources& b = made.weights.layers()[i].attention;
      if (!a.q.present() || again.part_of(a.q.module) != part) continue;
      float amax = 0;
      for (const LinearSource* linear : {&a.q, &a.k, &a.v})
        for (const float w : test::decoded(source, *linear)) amax = std::max(amax, std::fabs(w));
      const int exponent = global_exponent(amax);
      for (const auto& [linear, rounded] :
           {std::pair{&a.q, &b.q}, std::pair{&a.k, &b.k}, std::pair{&a.v, &b.v}}) {
        const auto weights = test::decoded(source, *linear);
        const Rounding rounding = prepare_rounding({.algorithm = RoundAlgorithm::gptq,
                                                    .cols = linear->cols,
                                                    .statistics = again.find(linear->module)});
        ASSERT_EQ(rounding.fallback, "") << linear->module;
        EXPECT_EQ(test::decoded(made, *rounded),
                  test::decoded(
                      round_matrix(rounding, test::matrix_view(weights, linear->cols), exponent),
                      exponent))
            << linear->module;
        ++compared;
      }
    }
  }
  EXPECT_GE(compared, 3);
}

}  // namespace
}  // namespace nibble
