// Options to data to a calibration that has begun, on a card or on the CPU.
#include "cli/quantizing/calibration_options.h"

#include <cstdio>
#include <set>

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/layer_runner.h"
#include "base/file.h"
#include "cli/terminal.h"

namespace nibble {
namespace {

constexpr uint64_t kMixBytesMax = uint64_t{1} << 20;

Result<CalibrationRequest> read_sources(const Arguments& arguments, const std::string& calib) {
  const std::filesystem::path folder = *arguments.text("calib-folder");
  for (const BuiltinMix& mix : builtin_mixes())
    if (mix.name == calib) return parse_calibration_mix(mix.text, concat("mix ", calib), folder);
  if (calib.ends_with(".yaml") || calib.ends_with(".yml"))
    return parse_calibration_mix(TRY(read_text_file(calib, kMixBytesMax)), calib, folder);
  if (calib.find('.') == std::string::npos) {
    std::string names;
    for (const BuiltinMix& mix : builtin_mixes())
      names += concat(names.empty() ? "" : ", ", mix.name);
    return make_error(ErrorCode::not_found,
                      {.what = "--calib",
                       .expected = concat("a file, or one of the mixes ", names),
                       .found = calib});
  }
  CalibrationRequest request;
  request.sources = TRY(parse_calibration_sources(calib));
  return request;
}

Result<CalibrationRequest> read_request(const Arguments& arguments, const std::string& calib) {
  CalibrationRequest request = TRY(read_sources(arguments, calib));
  const bool mix = !request.mix.empty();
  if (!mix || arguments.given("calib-samples"))
    request.samples = TRY(arguments.integer("calib-samples", 1, int64_t{1} << 30));
  if (!mix || arguments.given("calib-length"))
    request.length = TRY(arguments.integer("calib-length", 1, int64_t{1} << 30));
  if (!mix || arguments.given("calib-seed"))
    request.seed = static_cast<uint64_t>(TRY(arguments.integer("calib-seed", 0, INT64_MAX)));
  if (arguments.given("calib-map")) {
    const auto fields = TRY(parse_field_map(*arguments.text("calib-map")));
    for (CalibrationSource& source : request.sources)
      for (const auto& [name, field] : fields) source.fields[name] = field;
  }
  return request;
}

Result<void> refuse_without_data(const Arguments& arguments, RoundAlgorithm algorithm) {
  for (const std::string_view name : {"calib-folder", "calib-samples", "calib-length", "calib-seed",
                                      "calib-map", "second-moments"})
    if (arguments.given(name))
      return make_error(ErrorCode::invalid_argument,
                        {.what = concat("--", name), .expected = "--calib FILE beside it"});
  if (is_data_free(algorithm)) return {};
  return make_error(ErrorCode::invalid_argument,
                    {.what = concat("--algorithm ", round_algorithm_name(algorithm)),
                     .expected = "data to calibrate with",
                     .found = "none",
                     .advice = "add --calib FILE.jsonl"});
}

/// Nothing: all tokens count alike.
Result<std::optional<FisherOptions>> read_second_moments(const Arguments& arguments,
                                                         const CalibrationNeeds& needs) {
  std::optional<FisherOptions> fisher;
  if (arguments.given("second-moments")) {
    fisher = TRY(parse_second_moments(*arguments.text("second-moments")));
    if (fisher && is_data_free(needs.algorithm))
      return make_error(ErrorCode::invalid_argument,
                        {.what = "--second-moments fisher",
                         .expected = "--algorithm diagonal, blocks or gptq beside it",
                         .found = round_algorithm_name(needs.algorithm)});
  } else if (needs.second_moments == SecondMoments::fisher && !is_data_free(needs.algorithm)) {
    fisher = FisherOptions{};
  }
  if (fisher) fisher->threads = needs.threads;
  return fisher;
}

/// The linears that the algorithm does not round without data.
std::set<std::string> linears_with_data(const QuantPlan& plan, RoundAlgorithm algorithm) {
  std::set<std::string> names;
  for (const FusedGroup& group : plan.rounded)
    for (const PlannedLinear& linear : group.linears)
      if (moment_needed(algorithm, linear.becomes.scheme.weights) != SecondMoment::none)
        names.insert(linear.source.module);
  return names;
}

/// The layer runner of the card; null: the CPU is to calibrate. auto takes the CPU only where there
/// is no usable card or the card's kernels do not hold the model's shapes.
Result<std::shared_ptr<LayerRunner>> make_runner(const std::string& backend,
                                                 PreparedCalibration& prepared) {
  if (backend == "cpu") return std::shared_ptr<LayerRunner>();
  if (backend == "auto" && !describe_cuda_device().ok()) return std::shared_ptr<LayerRunner>();
  auto made = make_cuda_layer_runner(prepared.weights, prepared.config, {});
  if (made.ok()) return std::shared_ptr<LayerRunner>(std::move(made).value());
  if (backend == "cuda" || made.error().code != ErrorCode::unsupported) return made.error();
  prepared.notice = concat("calibrates on the CPU: ", made.error().message, "\n");
  return std::shared_ptr<LayerRunner>();
}

}  // namespace

const GptqDevice* PreparedCalibration::gptq_device() const {
  return options.gptq == GptqPlace::runner ? options.runner->gptq_device() : nullptr;
}

Result<void> PreparedCalibration::start(const Checkpoint& checkpoint, int64_t memory_bytes_max) {
  options.memory_bytes_max = memory_bytes_max;
  run.emplace(TRY(Calibration::start(checkpoint, weights, config, data, options)));
  return {};
}

std::string PreparedCalibration::hash() const {
  const std::string seen = concat(data.hash(), " ", run->runner().name());
  if (!fisher) return seen;
  return concat(seen, " ", second_moments_text(*fisher));
}

std::string PreparedCalibration::seconds_text() const {
  const LayerSeconds spent = run->runner().seconds();
  const auto seconds = [](std::string_view what, double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2f s", value);
    return concat(what, text);
  };
  std::string line = seconds("calibrated in ", run->seconds());
  if (fisher) line += seconds(", of which weights of tokens ", run->sweep_seconds());
  const FisherSeconds& sweep = run->sweep_parts();
  if (sweep.backward > 0)
    line += concat(" (", seconds("embeddings ", sweep.samples), seconds(", memory ", sweep.memory),
                   seconds(", waiting for weights ", sweep.weights),
                   seconds(", forward ", sweep.forward), seconds(", head ", sweep.head),
                   seconds(", backward ", sweep.backward),
                   seconds(", of these lengths on the host ", sweep.squares), ")");
  if (spent.passes > 0)
    line += concat(" (", seconds("passes ", spent.passes),
                   seconds(", waiting for weights ", spent.weights),
                   seconds(", fetching sums ", spent.sums), ")");
  return line + "\n";
}

std::string PreparedCalibration::text() const {
  const CalibrationMemory memory = run->memory();
  const auto megabytes = [](int64_t bytes) { return (bytes + 500'000) / 1'000'000; };
  return concat(
      "calibration: ", data.samples.size(), " samples, ", data.tokens(),
      " tokens; memory beside that: hidden states ", megabytes(memory.hidden_bytes), " MB, sums ",
      megabytes(memory.moment_bytes), " MB, a layer ", megabytes(memory.layer_bytes), " MB",
      fisher ? concat(", weights of tokens ", megabytes(memory.weight_bytes),
                      " MB; to find these, before the sums, ", megabytes(memory.sweep_bytes), " MB")
             : "",
      "\n", notice, "calibrates on ", run->runner().description(), "\n");
}

Result<CalibrationData> read_calibration_data(const Arguments& arguments,
                                              const Checkpoint& checkpoint,
                                              const ModelConfig& config) {
  const CalibrationRequest request = TRY(read_request(arguments, *arguments.text("calib")));
  return read_calibration(request, checkpoint.folder(), config.max_positions);
}

Result<std::unique_ptr<PreparedCalibration>> prepare_calibration(const Arguments& arguments,
                                                                 const Checkpoint& checkpoint,
                                                                 const QuantPlan& plan,
                                                                 const CalibrationNeeds& needs) {
  std::unique_ptr<PreparedCalibration> prepared;
  if (!arguments.given("calib")) {
    TRY(refuse_without_data(arguments, needs.algorithm));
    return prepared;
  }
  prepared = std::make_unique<PreparedCalibration>();
  prepared->config = TRY(ModelConfig::parse(checkpoint.config()));
  prepared->weights = TRY(Weights::bind(checkpoint, prepared->config));
  prepared->data = TRY(read_calibration_data(arguments, checkpoint, prepared->config));
  CalibrationOptions& options = prepared->options;
  prepared->fisher = TRY(read_second_moments(arguments, needs));
  options.fisher = prepared->fisher;
  options.moment = moment_needed(needs.algorithm);
  options.wants_moment = [names = linears_with_data(plan, needs.algorithm)](
                             const std::string& module) { return names.contains(module); };
  options.make_backend = [threads = needs.threads](const Weights& weights,
                                                   const ModelConfig& config) {
    return make_cpu_backend(weights, config, {.activations = Activations::f32, .threads = threads});
  };
  const std::string backend = TRY(arguments.choice("backend", {"auto", "cuda", "cpu"}));
  options.runner = TRY(make_runner(backend, *prepared));
  if (needs.algorithm == RoundAlgorithm::gptq && options.runner != nullptr) {
    options.gptq = GptqPlace::runner;
    options.moment_bytes_max =
        std::max(options.moment_bytes_max, options.runner->moment_room_bytes());
  }
  options.check = []() -> Result<void> {
    if (!interrupted()) return {};
    return Error{ErrorCode::cancelled, "stopped; the same command goes on where it stopped"};
  };
  return prepared;
}

}  // namespace nibble
