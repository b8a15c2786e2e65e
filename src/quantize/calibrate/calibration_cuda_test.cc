// Calibration on a card against calibration on the CPU, on Pebble; and on a card that is too small.
// Without a card only the refusal is tested.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/layer_runner.h"
#include "quantize/calibrate/calibration.h"
#include "quantize/recipe/model_linears.h"
#include "testing/source_dir.h"

namespace nibble {
namespace {

struct Pebble {
  Checkpoint checkpoint = Checkpoint::open(NIBBLE_SOURCE_DIR "/pebble/model").value();
  ModelConfig config = ModelConfig::parse(checkpoint.config()).value();
  Weights weights = Weights::bind(checkpoint, config).value();
};

CalibrationData random_data(const std::vector<size_t>& lengths) {
  CalibrationData data;
  std::mt19937_64 random(5);
  SourceReport source{.file = "random"};
  for (const size_t length : lengths) {
    CalibrationSample sample;
    for (size_t i = 0; i < length; ++i) sample.ids.push_back(static_cast<int32_t>(random() % 1900));
    source.tokens += static_cast<int64_t>(length);
    data.samples.push_back(std::move(sample));
  }
  data.sources = {source};
  return data;
}

using Inputs = std::map<std::string, InputStatistics>;

/// Collects what every part saw, by module.
Result<Inputs> gather(const Pebble& model, const CalibrationData& data,
                      std::shared_ptr<LayerRunner> runner, SecondMoment moment,
                      int64_t moment_bytes_max = int64_t{1} << 30) {
  CalibrationOptions options{.moment = moment,
                             .wants_moment = [](const std::string&) { return true; },
                             .runner = std::move(runner),
                             .make_backend =
                                 [](const Weights& weights, const ModelConfig& config) {
                                   return make_cpu_backend(weights, config, {.threads = 2});
                                 },
                             .moment_bytes_max = moment_bytes_max};
  Calibration run = TRY(
      Calibration::start(model.checkpoint, model.weights, model.config, data, std::move(options)));
  Inputs inputs;
  for (int part = 0; part < run.parts(); ++part) {
    TRY(run.run(part));
    for (const auto& group : fused_linears(model.weights))
      for (const LinearSource* linear : group)
        if (const InputStatistics* seen = run.find(linear->module)) inputs[linear->module] = *seen;
  }
  return inputs;
}

std::shared_ptr<LayerRunner> card_runner(const Pebble& model, const CardLimit& limit = {}) {
  return make_cuda_layer_runner(model.weights, model.config, limit).value();
}

/// Norm of the difference over the norm of what is expected.
double difference(const InputStatistics& found, const InputStatistics& expected) {
  double error = 0;
  double square = 0;
  for (size_t i = 0; i < expected.moment.size(); ++i) {
    error += std::pow(found.moment[i] - expected.moment[i], 2);
    square += std::pow(expected.moment[i], 2);
  }
  return square == 0 ? std::sqrt(error) : std::sqrt(error / square);
}

TEST(CalibrationOnCuda, IsRefusedWithoutACard) {
  const auto device = describe_cuda_device();
  if (device.ok()) GTEST_SKIP() << device.value();
  const Pebble model;
  const auto runner = make_cuda_layer_runner(model.weights, model.config, {});
  ASSERT_FALSE(runner.ok());
  EXPECT_EQ(runner.error().message, device.error().message);
}

class CalibrationOnCard : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto device = describe_cuda_device(); !device.ok())
      GTEST_SKIP() << device.error().message;
  }
  Pebble model_;
};

/// The largest of what was found, and where.
struct Worst {
  double value = 0;
  std::string module;
  void see(double other, const std::string& where) {
    if (other <= value) return;
    value = other;
    module = where;
  }
};

class CalibrationKinds : public CalibrationOnCard,
                         public testing::WithParamInterface<SecondMoment> {};

TEST_P(CalibrationKinds, SeesWhatTheCpuSees) {
  const CalibrationData data = random_data({7, 130, 64, 700, 1, 33, 2500, 2048, 512});
  const Inputs card = gather(model_, data, card_runner(model_), GetParam()).value();
  const Inputs cpu = gather(model_, data, nullptr, GetParam()).value();
  ASSERT_EQ(card.size(), cpu.size());
  Worst amax, moment, tokens;
  std::vector<std::pair<double, std::string>> routed_moments;
  for (const auto& [module, expected] : cpu) {
    const InputStatistics& found = card.at(module);
    const bool routed = module.find(".experts.") != std::string::npos;
    ASSERT_EQ(found.kind, expected.kind) << module;
    EXPECT_EQ(found.bad_tokens, 0) << module;
    if (!routed) {
      EXPECT_EQ(found.tokens, expected.tokens) << module;
      amax.see(std::fabs(found.amax / expected.amax - 1), module);
      moment.see(difference(found, expected), module);
      continue;
    }
    // A token near a tie may go to another expert.
    tokens.see(std::fabs(static_cast<double>(found.tokens - expected.tokens)) /
                   (static_cast<double>(expected.tokens) + 100),
               module);
    routed_moments.emplace_back(difference(found, expected),
                                concat(module, ", ", expected.tokens, " tokens"));
  }
  EXPECT_LT(amax.value, 0.03) << amax.module;
  EXPECT_LT(moment.value, 0.01) << moment.module;
  // A token that another expert gets is missing with its whole input, so a few differences are very
  // large; an expert whose sums are lost differs by 1.
  std::ranges::sort(routed_moments);
  const size_t count = routed_moments.size();
  EXPECT_LT(routed_moments[count / 2].first, 0.01) << routed_moments[count / 2].second;
  EXPECT_LT(routed_moments[count * 49 / 50].first, 0.15) << routed_moments[count * 49 / 50].second;
  EXPECT_LT(routed_moments.back().first, 0.7) << routed_moments.back().second;
  EXPECT_LT(tokens.value, 0.05) << tokens.module;
  RecordProperty("amax", concat(amax.value, " ", amax.module));
  RecordProperty("sums", concat(moment.value, " ", moment.module));
  RecordProperty("sums_of_experts_median_and_largest",
                 concat(routed_moments[count / 2].first, " ", routed_moments.back().first));
  RecordProperty("routed_tokens", concat(tokens.value, " ", tokens.module));
}

INSTANTIATE_TEST_SUITE_P(Moments, CalibrationKinds,
                         testing::Values(SecondMoment::none, SecondMoment::diagonal,
                                         SecondMoment::blocks, SecondMoment::full));

TEST_F(CalibrationOnCard, RepeatsItsBitsAndPartsDoNotChangeThem) {
  const CalibrationData data = random_data({700, 64, 1000});
  const Inputs once = gather(model_, data, card_runner(model_), SecondMoment::full).value();
  const Inputs again = gather(model_, data, card_runner(model_), SecondMoment::full).value();
  const Inputs parts =
      gather(model_, data, card_runner(model_), SecondMoment::full, 600'000).value();
  for (const auto& [module, seen] : once) {
    for (const Inputs* other : {&again, &parts}) {
      EXPECT_EQ(other->at(module).moment, seen.moment) << module;
      EXPECT_EQ(other->at(module).amax, seen.amax) << module;
      EXPECT_EQ(other->at(module).tokens, seen.tokens) << module;
    }
  }
}

/// Hidden states stay on the host and passes are short on the smallest card that takes the model.
TEST_F(CalibrationOnCard, ASmallCardSeesTheSameOrIsRefused) {
  const CalibrationData data = random_data(std::vector<size_t>(16, 1500));
  const Inputs large = gather(model_, data, card_runner(model_), SecondMoment::blocks).value();
  int64_t refused = 0;
  int64_t taken = int64_t{24} << 30;
  std::string message;
  Inputs small;
  while (taken - refused > int64_t{8} << 20) {
    const int64_t middle = (refused + taken) / 2;
    // Others on the card count against the limit, so not even the runner may fit.
    auto made = make_cuda_layer_runner(model_.weights, model_.config, {.memory_bytes = middle});
    const std::shared_ptr<LayerRunner> runner = made.ok() ? std::move(made).value() : nullptr;
    auto tried = runner == nullptr ? Result<Inputs>(made.error())
                                   : gather(model_, data, runner, SecondMoment::blocks);
    if (tried.ok()) {
      taken = middle;
      small = std::move(tried).value();
      message = runner->description();
    } else {
      ASSERT_EQ(tried.error().code, ErrorCode::no_memory) << tried.error().message;
      refused = middle;
    }
  }
  EXPECT_NE(message.find("on the host"), std::string::npos) << message;
  EXPECT_NE(message.find("passes of 1024"), std::string::npos) << message;
  for (const auto& [module, seen] : large) {
    EXPECT_EQ(small.at(module).tokens, seen.tokens) << module;
    EXPECT_EQ(small.at(module).amax, seen.amax) << module;
    // Tensor cores cut off what F32 does not hold: 2^-24 a step of 16 rows, within one pass.
    EXPECT_LT(difference(small.at(module), seen), 1e-4) << module;
  }
}

}  // namespace
}  // namespace nibble
