// Quantization with data: the same bytes however the work is cut, stopped and continued;
// measured input scales that groups share; every algorithm gives a sound checkpoint; starved
// experts by name.
#include <gtest/gtest.h>

#include <atomic>

#include "backend/cpu/cpu_backend.h"
#include "quantize/rounding/rounding.h"
#include "quantize/testing/test_runs.h"
#include "quantize/verify/verify.h"

namespace nibble {
namespace {

using test::Asked;
using test::Folder;
using test::Layout;

struct Settings {
  std::string recipe = "w4a4";
  RoundAlgorithm algorithm = RoundAlgorithm::gptq;
  Dialect dialect = Dialect::compressed_tensors;
  int64_t moment_bytes_max = int64_t{1} << 30;
  int threads = 2;
  int64_t samples = 12;
  std::function<bool()> cancelled = {};
  std::optional<FisherOptions> fisher = {};
};

CalibrationData random_data(int64_t samples) {
  CalibrationData data;
  std::mt19937_64 random(5);
  SourceReport source{.file = "random"};
  for (int64_t i = 0; i < samples; ++i) {
    CalibrationSample sample;
    for (int t = 0; t < 100; ++t)
      sample.ids.push_back(static_cast<int32_t>(random() % test::kVocab));
    source.tokens += 100;
    data.samples.push_back(std::move(sample));
  }
  data.sources = {source};
  return data;
}

Result<QuantizeReport> run(const std::filesystem::path& source, const std::filesystem::path& output,
                           const Settings& settings) {
  const test::Opened model(source);
  const ModelConfig config = ModelConfig::parse(model.checkpoint.config()).value();
  const CalibrationData data = random_data(settings.samples);
  Calibration calibration = TRY(Calibration::start(
      model.checkpoint, model.weights, config, data,
      {.moment = moment_needed(settings.algorithm),
       .wants_moment = [](const std::string&) { return true; },
       .fisher = settings.fisher,
       .make_backend =
           [&](const Weights& weights, const ModelConfig& one) {
             return make_cpu_backend(weights, one, {.threads = settings.threads});
           },
       .moment_bytes_max = settings.moment_bytes_max}));
  Asked asked{.recipe = load_recipe(settings.recipe).value(), .dialect = settings.dialect};
  asked.options.algorithm = settings.algorithm;
  asked.options.threads = settings.threads;
  asked.options.journal_seconds = 0;
  asked.options.cancelled = settings.cancelled;
  asked.options.calibration = &calibration;
  asked.options.data_hash = data.hash();
  return test::run(source, output, asked);
}

/// No scale of a KV cache is measured, none is declared.
void expect_no_cache_format(const std::filesystem::path& folder, Dialect dialect) {
  const test::Opened made(folder);
  for (const TensorEntry& entry : made.checkpoint.entries())
    EXPECT_FALSE(entry.name.ends_with(".k_scale") || entry.name.ends_with(".v_scale"))
        << entry.name;
  const Json& declared = *made.checkpoint.config().find("quantization_config");
  EXPECT_TRUE(declared.find("kv_cache_scheme")->is_null());
  if (dialect != Dialect::modelopt) return;
  const Json side = parse_json(test::file_text(folder / "hf_quant_config.json"), "side").value();
  EXPECT_TRUE(side.find("quantization")->find("kv_cache_quant_algo")->is_null());
}

TEST(QuantizeCalibrated, EveryAlgorithmAndDialectIsSound) {
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts);
  int number = 0;
  for (const auto algorithm : kRoundAlgorithms)
    for (const auto dialect : {Dialect::compressed_tensors, Dialect::modelopt}) {
      if (dialect == Dialect::modelopt && algorithm != RoundAlgorithm::gptq) continue;
      const auto output = folder / concat("out", number++);
      const auto report = run(folder / "in", output,
                              {.recipe = "mixed", .algorithm = algorithm, .dialect = dialect});
      ASSERT_TRUE(report.ok()) << report.error().message;
      EXPECT_FALSE(report.value().json().find("calibration")->is_null());
      EXPECT_TRUE(report.value().commands.front().ends_with(" --calib DATA"));
      const auto verified = verify_checkpoint(output).value();
      EXPECT_TRUE(verified.sound()) << (verified.findings.empty() ? "" : verified.findings[0].text);
      expect_no_cache_format(output, dialect);
    }
}

/// Four bits alone; and with these eight: by tensor, by row and by tensor, by tile.
constexpr const char* kFourAndEightBits[] = {"w4a4", "mixed", "fp8", "w4a4-fp8-head"};

TEST(QuantizeCalibrated, CutsAndThreadsLeaveNoTrace) {
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts);
  for (const std::string recipe : kFourAndEightBits) {
    const auto a = folder / (recipe + "-a"), b = folder / (recipe + "-b");
    const auto c = folder / (recipe + "-c");
    ASSERT_TRUE(run(folder / "in", a, {.recipe = recipe}).ok());
    ASSERT_TRUE(
        run(folder / "in", b, {.recipe = recipe, .moment_bytes_max = 50'000, .threads = 1}).ok());
    EXPECT_TRUE(test::files_of(a) == test::files_of(b)) << recipe;
    // The data do matter.
    ASSERT_TRUE(run(folder / "in", c, {.recipe = recipe, .samples = 11}).ok());
    EXPECT_FALSE(test::files_of(a) == test::files_of(c)) << recipe;
  }
}

TEST(QuantizeCalibrated, WeightsOfTokensMatterAndThreadsLeaveNoTraceInThem) {
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts);
  for (const auto algorithm :
       {RoundAlgorithm::diagonal, RoundAlgorithm::blocks, RoundAlgorithm::gptq}) {
    const std::string name(round_algorithm_name(algorithm));
    const auto a = folder / (name + "-a"), b = folder / (name + "-b"), c = folder / (name + "-c");
    ASSERT_TRUE(run(folder / "in", a, {.algorithm = algorithm, .fisher = FisherOptions{}}).ok());
    ASSERT_TRUE(run(folder / "in", b,
                    {.algorithm = algorithm,
                     .moment_bytes_max = 50'000,
                     .threads = 1,
                     .fisher = FisherOptions{.states_bytes_max = 1, .threads = 1}})
                    .ok());
    EXPECT_TRUE(test::files_of(a) == test::files_of(b)) << name;
    ASSERT_TRUE(run(folder / "in", c, {.algorithm = algorithm}).ok());
    EXPECT_NE(test::files_of(a).at("quantize_hashes.json"),
              test::files_of(c).at("quantize_hashes.json"))
        << name;
    EXPECT_TRUE(verify_checkpoint(a).value().sound()) << name;
  }
}

TEST(QuantizeCalibrated, WorkThatWasStoppedGoesOnToTheSameBytes) {
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts);
  for (const std::string recipe : kFourAndEightBits) {
    const auto whole = folder / (recipe + "-whole"), out = folder / (recipe + "-out");
    ASSERT_TRUE(run(folder / "in", whole, {.recipe = recipe, .moment_bytes_max = 50'000}).ok());
    for (int stops = 0, asks = 20;; ++stops, asks += 60) {
      ASSERT_LT(stops, 20);
      std::atomic<int> count = 0;
      const auto report =
          run(folder / "in", out,
              {.recipe = recipe, .moment_bytes_max = 50'000, .cancelled = [&, asks] {
                 return ++count > asks;
               }});
      if (report.ok()) {
        EXPECT_GT(stops, 0);
        break;
      }
      ASSERT_EQ(report.error().code, ErrorCode::cancelled) << report.error().message;
    }
    EXPECT_TRUE(test::files_of(whole) == test::files_of(out)) << recipe;
  }
}

TEST(QuantizeCalibrated, EightBitCodesFollowTheDataUnderTheSameScales) {
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts);
  const auto search =
      run(folder / "in", folder / "a", {.recipe = "fp8", .algorithm = RoundAlgorithm::search});
  const auto gptq = run(folder / "in", folder / "b", {.recipe = "fp8"});
  ASSERT_TRUE(search.ok() && gptq.ok());
  EXPECT_TRUE(search.value().fallbacks.empty());
  const test::Opened a(folder / "a"), b(folder / "b");
  const auto parts = [](const test::Opened& model, const LinearSource& source) {
    const LinearWeight weight = model.weights.load(source).value();
    const auto text = [](const Tensor& tensor) {
      return std::string(reinterpret_cast<const char*>(tensor.view().data),
                         static_cast<size_t>(tensor.bytes()));
    };
    return std::pair(text(weight.values), text(weight.scales));
  };
  for (const auto& [left, right] :
       {std::pair(&a.weights.layers()[1].attention.q, &b.weights.layers()[1].attention.q),
        std::pair(&a.weights.layers()[0].moe.experts[0].down,
                  &b.weights.layers()[0].moe.experts[0].down)}) {
    const auto before = parts(a, *left), now = parts(b, *right);
    EXPECT_NE(before.first, now.first) << left->module;
    EXPECT_EQ(before.second, now.second) << left->module;
  }
}

TEST(QuantizeCalibrated, InputScalesAreMeasuredAndSharedByALayersExperts) {
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts);
  ASSERT_TRUE(run(folder / "in", folder / "out", {.algorithm = RoundAlgorithm::search}).ok());
  const test::Opened out(folder / "out");
  const auto scale = [&](const LinearSource& source) {
    const float file = out.weights.load(source).value().input_scale.value;  // a divisor
    int exponent = 0;
    EXPECT_EQ(std::frexp(file, &exponent), 0.5F);
    return 1.0F / file;
  };
  std::vector<float> scales;
  for (const LayerSources& layer : out.weights.layers()) {
    const auto& experts = layer.moe.experts;
    for (const MlpSources& expert : experts) {
      EXPECT_EQ(scale(expert.gate), scale(experts[0].gate));
      EXPECT_EQ(scale(expert.up), scale(experts[0].gate));
      EXPECT_EQ(scale(expert.down), scale(experts[0].down));
    }
    scales.push_back(scale(experts[0].down));
    EXPECT_NE(scale(experts[0].gate), scale(experts[0].down));
  }
  for (const float value : scales) EXPECT_NE(value, 1.0F);
}

TEST(QuantizeCalibrated, StarvedExpertsFallBackByName) {
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts);
  const auto report = run(folder / "in", folder / "out", {.samples = 4}).value();
  const Json json = report.json();
  const auto& few = json.find("calibration")->find("experts_below_256_tokens")->as_array();
  ASSERT_FALSE(few.empty());
  bool warned = false;
  for (const std::string& warning : report.warnings)
    warned = warned || (warning.find("without data") != std::string::npos &&
                        warning.find(" tokens of 256") != std::string::npos);
  EXPECT_TRUE(warned);
}

TEST(QuantizeCalibrated, ExpertsThatNobodyUsesGetFiniteScales) {
  // The router never chooses expert 3: its logit is the lowest for every input.
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts,
                    [](const std::string& tensor, int64_t index, float drawn) {
                      if (tensor.find("mlp.gate.weight") == std::string::npos) return drawn;
                      return index / test::kHidden == 3 ? 0.0F : 20.0F * std::fabs(drawn);
                    });
  const auto report = run(folder / "in", folder / "out", {}).value();
  EXPECT_TRUE(verify_checkpoint(folder / "out").value().sound());
  const test::Opened out(folder / "out");
  for (const LayerSources& layer : out.weights.layers())
    for (const MlpSources& expert : layer.moe.experts)
      EXPECT_EQ(out.weights.load(expert.down).value().input_scale.value,
                out.weights.load(layer.moe.experts[0].down).value().input_scale.value);
}

}  // namespace
}  // namespace nibble
