// Quantization where the layer runner's device rounds and keeps the sums: the same files as by the
// CPU alone, in one piece and in parts, with four bits and with eight.
#include <gtest/gtest.h>

#include "quantize/rounding/rounding.h"
#include "quantize/testing/calibration_runs.h"
#include "quantize/testing/cpu_gptq_device.h"
#include "quantize/testing/test_runs.h"

namespace nibble {
namespace {

using test::Layout;

struct Settings {
  std::string recipe;
  GptqPlace gptq = GptqPlace::runner;
  int64_t moment_bytes_max = int64_t{1} << 30;
};

/// Returns the device that the run had.
std::shared_ptr<test::KeepingRunner> run(const test::Model& model,
                                         const std::filesystem::path& output,
                                         const Settings& settings) {
  const CalibrationData data = test::random_data();
  CalibrationOptions options = test::options(SecondMoment::full, settings.moment_bytes_max);
  const auto runner = std::make_shared<test::KeepingRunner>(
      make_host_layer_runner(model.weights, model.config, options.make_backend));
  options.runner = runner;
  options.gptq = settings.gptq;
  Calibration calibration =
      Calibration::start(*model.checkpoint, model.weights, model.config, data, std::move(options))
          .value();
  EXPECT_EQ(calibration.memory().moment_bytes == 0, settings.gptq == GptqPlace::runner);
  test::Asked asked{.recipe = load_recipe(settings.recipe).value()};
  asked.options.algorithm = RoundAlgorithm::gptq;
  asked.options.threads = 2;
  asked.options.calibration = &calibration;
  asked.options.data_hash = data.hash();
  const auto report = test::run(model.folder / "m", output, asked);
  EXPECT_TRUE(report.ok()) << (report.ok() ? "" : report.error().message);
  return runner;
}

TEST(QuantizeOnDevice, WritesTheFilesThatTheCpuWrites) {
  const test::Model model(Layout::fused_experts);
  for (const std::string recipe : {"w4a4", "mixed", "w4a4-fp8-head"}) {
    const auto at = [&](const char* name) { return model.folder / concat(recipe, name); };
    const auto cpu = run(model, at("-cpu"), {.recipe = recipe, .gptq = GptqPlace::cpu});
    const auto whole = run(model, at("-whole"), {.recipe = recipe});
    const auto parts = run(model, at("-parts"), {.recipe = recipe, .moment_bytes_max = 50'000});
    EXPECT_TRUE(test::files_of(at("-cpu")) == test::files_of(at("-whole"))) << recipe;
    EXPECT_TRUE(test::files_of(at("-cpu")) == test::files_of(at("-parts"))) << recipe;
    EXPECT_EQ(cpu->gptq_cols, 0);
    EXPECT_GE(whole->gptq_cols, model.config.hidden);
    EXPECT_EQ(cpu->device.factorised, 0);
    EXPECT_GT(whole->device.kept, 0);
    EXPECT_EQ(whole->device.kept, whole->device.factorised);
    EXPECT_EQ(parts->device.kept, whole->device.kept);
  }
}

}  // namespace
}  // namespace nibble
