// GPTQ on a card against the CPU's, byte for byte, for every linear of Pebble: the card rounds with
// the sums that it kept, the CPU with those that another run brought to the host.
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/layer_runner.h"
#include "quantize/calibrate/calibration.h"
#include "quantize/recipe/model_linears.h"
#include "quantize/rounding/fp8_round.h"
#include "quantize/rounding/rounding.h"
#include "tensor/fp8.h"
#include "testing/source_dir.h"

namespace nibble {
namespace {

class GptqOnCard : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto device = describe_cuda_device(); !device.ok())
      GTEST_SKIP() << device.error().message;
  }

  Calibration start(GptqPlace gptq) const {
    return Calibration::start(checkpoint_, weights_, config_, data_,
                              {.moment = SecondMoment::full,
                               .wants_moment = [](const std::string&) { return true; },
                               .runner = std::shared_ptr<LayerRunner>(
                                   make_cuda_layer_runner(weights_, config_, {}).value()),
                               .gptq = gptq})
        .value();
  }
  void compare(const LinearSource& linear, const Calibration& host, const Calibration& card);

  static CalibrationData random_data() {
    CalibrationData data;
    SourceReport source{.file = "random"};
    for (int64_t i = 0; i < 16; ++i) {
      CalibrationSample sample;
      for (int64_t t = 0; t < 500; ++t)
        sample.ids.push_back(static_cast<int32_t>((i * 7919 + t * t * 31 + t) % 1900));
      source.tokens += 500;
      data.samples.push_back(std::move(sample));
    }
    data.sources = {source};
    return data;
  }

  Checkpoint checkpoint_ = Checkpoint::open(NIBBLE_SOURCE_DIR "/pebble/model").value();
  ModelConfig config_ = ModelConfig::parse(checkpoint_.config()).value();
  Weights weights_ = Weights::bind(checkpoint_, config_).value();
  CalibrationData data_ = random_data();
  int compared_ = 0;
};

void GptqOnCard::compare(const LinearSource& linear, const Calibration& host,
                         const Calibration& card) {
  const InputStatistics *sums = host.find(linear.module), *kept = card.find(linear.module);
  if (sums == nullptr || sums->kind != SecondMoment::full) return;
  ASSERT_NE(kept, nullptr) << linear.module;
  ASSERT_EQ(kept->place, MomentPlace::device) << linear.module;
  const TensorEntry& entry = *checkpoint_.find(linear.values);
  Tensor values(entry.dtype, {linear.rows, linear.cols});
  ASSERT_TRUE(checkpoint_
                  .read_bytes(entry, dtype_bytes(entry.dtype, linear.row_begin * linear.cols),
                              values.span())
                  .ok());
  RoundingRequest request{.algorithm = RoundAlgorithm::gptq,
                          .cols = linear.cols,
                          .statistics = sums,
                          .path = best_round_path()};
  const float amax = largest_magnitude(values.view().data, entry.dtype, values.shape().count());
  const auto count = static_cast<size_t>(linear.rows * linear.cols);
  const float scale = fp8_scale(amax);
  ThreadPool threads(2);
  std::vector<uint8_t> fp8[2];
  RoundedMatrix four[2];
  for (const int place : {0, 1}) {
    request.statistics = place == 0 ? sums : kept;
    request.device = place == 0 ? nullptr : card.gptq_device();
    {
      const Rounding rounding = prepare_rounding(request);
      four[place] = round_matrix(rounding, values.view(), global_exponent(amax));
      EXPECT_EQ(rounding.fallback.empty(), sums->tokens >= request.tokens_min) << linear.module;
    }
    const Fp8Rounding rounding = prepare_fp8_rounding(request);
    fp8[place].resize(count);
    if (rounding.gptq != nullptr)
      rounding.gptq->round_bands(values.view(), {.values = std::span(&scale, 1)}, fp8[place],
                                 threads);
  }
  EXPECT_EQ(four[1].codes, four[0].codes) << linear.module;
  EXPECT_EQ(four[1].scales, four[0].scales) << linear.module;
  EXPECT_EQ(four[1].statistics.error_squares, four[0].statistics.error_squares) << linear.module;
  EXPECT_EQ(fp8[1], fp8[0]) << linear.module;
  ++compared_;
}

TEST_F(GptqOnCard, GivesTheBytesOfTheCpuForEveryLinear) {
  Calibration host = start(GptqPlace::cpu), card = start(GptqPlace::runner);
  ASSERT_NE(card.gptq_device(), nullptr) << card.runner().description();
  EXPECT_EQ(card.memory().moment_bytes, 0);
  ASSERT_EQ(host.parts(), card.parts());
  for (int part = 0; part < card.parts(); ++part) {
    ASSERT_TRUE(card.run(part).ok() && host.run(part).ok());
    for (const auto& group : fused_linears(weights_))
      for (const LinearSource* linear : group) compare(*linear, host, card);
  }
  EXPECT_GT(compared_, 100);
}

}  // namespace
}  // namespace nibble
