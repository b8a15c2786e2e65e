// nibble bench formats: the same linears of a checkpoint in several weight formats, all judged on
// the same text: bits, error and divergence. FP8 and NVFP4 as `nibble quantize` writes them; the
// others are rounded in memory by a simulation, which is never written.
#include <cmath>
#include <map>
#include <set>

#include "base/file.h"
#include "bench/load_text.h"
#include "cli/benchmarks/bench_lists.h"
#include "cli/benchmarks/format_table.h"
#include "cli/benchmarks/work_folder.h"
#include "cli/evaluating/eval_text.h"
#include "cli/loading/thread_count.h"
#include "cli/options/flag_errors.h"
#include "cli/serving/model_loader.h"
#include "eval/rounded_tensors.h"
#include "quantize/quantize.h"
#include "tensor/fp8.h"

namespace nibble {
namespace {

constexpr auto kOwnOptions = std::to_array<Option>({
    {"formats", "NAME[,NAME...]", "fp8,nvfp4,int8,int4,mxfp4", "in this order"},
    {"recipe", "NAME|FILE", "fp8",
     "whose linears are rounded, all to the format in turn, whatever the recipe makes of them"},
    {"algorithm", "NAME", "search", "of nvfp4: search, amax or four-over-six"},
    {"sequence-tokens", "N", "512", "tokens of a piece of text"},
    {"max-tokens", "N", "", "tokens of the text in all"},
    {"work", "DIR", ".", "where fp8 and nvfp4 are written and removed: as much room as one"},
    {"json", "FILE", "", "write machine and every row as JSON"},
});
constexpr auto kOptions = joined_options(kOwnOptions, kModelOptions);

struct Request {
  std::vector<std::string> formats;
  QuantizeOptions options;  // how the formats are written
};

const SimulatedFormat* simulated(std::string_view name) {
  for (const SimulatedFormat& format : simulated_formats())
    if (format.name == name) return &format;
  return nullptr;
}

Result<Request> read_request(const Arguments& arguments) {
  FlagErrors errors;
  Request request;
  const std::string names = *arguments.text("formats");
  for (const std::string_view name : words_between(names, ',')) {
    request.formats.emplace_back(name);
    if (name != "fp8" && name != "nvfp4" && simulated(name) == nullptr)
      errors.add(
          make_error(ErrorCode::invalid_argument, {.what = "--formats",
                                                   .expected = "fp8, nvfp4, int8, int4 or mxfp4",
                                                   .found = std::string(name)}));
  }
  errors.add(arguments.choice("algorithm", {"search", "amax", "four-over-six"}));
  if (errors.empty())
    request.options.algorithm = errors.take(parse_round_algorithm(*arguments.text("algorithm")));
  request.options.threads = errors.take(read_threads(arguments));
  request.options.cancelled = interrupted;
  errors.add(arguments.integer("sequence-tokens", 2, 1 << 20));
  if (arguments.given("max-tokens")) errors.add(arguments.integer("max-tokens", 2, INT64_MAX));
  TRY(errors.result());
  return request;
}

/// Everything that the formats share.
struct Inputs {
  const Request& request;
  ModelRequest model;  // the unquantized checkpoint
  const Checkpoint& checkpoint;
  Recipe recipe;
  QuantPlan plan;  // the plan of the recipe; its linears are rounded
  std::vector<std::vector<int32_t>> sequences;
  ScoredModel source;
  std::filesystem::path work;
};

Result<ScoreResult> score_of(const Inputs& inputs, const LoadedModel& model) {
  ScoreRequest request{.sequences = inputs.sequences};
  request.model = {.backend = model.backend.get(), .config = &model.config};
  request.reference = inputs.source;
  request.progress = [](int64_t, int64_t) {
    return interrupted() ? ScoreRequest::Next::stop : ScoreRequest::Next::go_on;
  };
  return score(request);
}

/// The tensors that hold the planned linears, and the length of their rows.
std::map<std::string, int64_t> planned_tensors(const QuantPlan& plan) {
  std::map<std::string, int64_t> columns;
  for (const FusedGroup& group : plan.rounded)
    for (const PlannedLinear& linear : group.linears)
      columns.emplace(linear.source.values, linear.source.cols);
  return columns;
}

/// Fills in weights, bits and error of a simulated format, linear by linear.
Result<void> measure(const Inputs& inputs, const SimulatedFormat& format, FormatRow& row) {
  const RoundedTensors rounded(inputs.checkpoint, format, planned_tensors(inputs.plan));
  double squares = 0.0;
  double errors = 0.0;
  int64_t bits = 0;
  for (const auto& [name, cols] : planned_tensors(inputs.plan)) {
    if (interrupted()) return make_error(ErrorCode::cancelled, {.what = "bench formats"});
    const Tensor before = TRY(inputs.checkpoint.read(*inputs.checkpoint.find(name)));
    const Tensor after = TRY(rounded.read(*rounded.find(name)));
    const int64_t count = before.shape().count();
    std::vector<float> values(static_cast<size_t>(count));
    decode_plain(before.view().data, before.dtype(), count, values.data());
    for (size_t i = 0; i < values.size(); ++i) {
      const double error = double{values[i]} - double{after.as<float>()[i]};
      squares += double{values[i]} * double{values[i]};
      errors += error * error;
    }
    const int64_t group = format.group == 0 ? cols : format.group;
    const int64_t groups = count / cols * ((cols + group - 1) / group);
    bits += count * format.code_bits + groups * format.scale_bits;
    row.weights += count;
  }
  row.bits = static_cast<double>(bits) / static_cast<double>(row.weights);
  row.relative_error = squares == 0.0 ? 0.0 : std::sqrt(errors / squares);
  return {};
}

Result<FormatRow> simulate(const Inputs& inputs, const SimulatedFormat& format) {
  FormatRow row{.format = concat(format.name, " (simulated)"), .rule = std::string(format.rule)};
  TRY(measure(inputs, format, row));
  ModelRequest request = inputs.model;
  request.reader = [&](const Checkpoint& checkpoint) {
    return std::make_unique<RoundedTensors>(checkpoint, format, planned_tensors(inputs.plan));
  };
  const LoadedModel model = TRY(load_model(request));
  row.scores = TRY(score_of(inputs, model));
  return row;
}

/// The scheme that a recipe's `weights: fp8` gives.
constexpr QuantScheme kFp8 = {.weights = WeightFormat::fp8_tensor,
                              .activations = ActivationFormat::fp8_tensor};

/// Written by the code of `nibble quantize` and read back.
Result<FormatRow> write(const Inputs& inputs, const std::string& name) {
  const bool nvfp4 = name == "nvfp4";
  Recipe recipe = inputs.recipe;
  for (RecipeRule& rule : recipe.rules)
    rule.gives = {.scheme = nvfp4 ? QuantScheme{.weights = WeightFormat::nvfp4} : kFp8};
  const QuantPlan plan =
      TRY(plan_quantization(inputs.checkpoint, recipe, Dialect::compressed_tensors));
  const WorkFolder folder(inputs.work);
  const QuantizeReport report =
      TRY(quantize(inputs.checkpoint, plan, recipe, folder.path(), inputs.request.options));
  const KindReport all = report.total_rounded();
  constexpr double kByteBits = 8.0;
  FormatRow row{
      .format = name,
      .rule = nvfp4 ? "one E4M3 scale for 16 columns, one F32 for all; E2M1 codes"
                    : "one scale a matrix, of routed experts one a row; E4M3 codes",
      .weights = all.weights,
      .bits = kByteBits * static_cast<double>(all.bytes_out) / static_cast<double>(all.weights),
      .relative_error = all.relative_error(),
      .scores = {}};
  ModelRequest request = inputs.model;
  request.folder = folder.path();
  const LoadedModel model = TRY(load_model(request));
  row.scores = TRY(score_of(inputs, model));
  return row;
}

Result<std::vector<FormatRow>> measure_all(const Inputs& inputs, Terminal& terminal) {
  std::vector<FormatRow> rows;
  const std::vector<std::string>& names = inputs.request.formats;
  for (const std::string& name : names) {
    const SimulatedFormat* format = simulated(name);
    rows.push_back(TRY(format != nullptr ? simulate(inputs, *format) : write(inputs, name)));
    terminal.err(concat(name, ": ", rows.size(), " of ", names.size(), "\n"));
  }
  return rows;
}

Result<int> run(const Arguments& arguments, Terminal& terminal) {
  if (arguments.positional_count() < 2)
    return make_error(
        ErrorCode::invalid_argument,
        {.what = "`nibble bench formats`", .expected = "DIR TEXT...", .found = "too few words"});
  const Request request = TRY(read_request(arguments));
  const auto folder = TRY(first_folder(arguments, terminal));
  const Checkpoint checkpoint = TRY(Checkpoint::open(folder));
  Recipe recipe = TRY(load_recipe(*arguments.text("recipe")));
  QuantPlan plan = TRY(plan_quantization(checkpoint, recipe, Dialect::compressed_tensors));
  ModelRequest wanted = TRY(model_request(arguments, folder));
  wanted.use = ModelUse::judging;
  auto sequences = TRY(text_sequences(arguments, folder, 1));
  const LoadedModel source = TRY(load_model(wanted));
  terminal.err(source.notice);
  const Inputs inputs{.request = request,
                      .model = wanted,
                      .checkpoint = checkpoint,
                      .recipe = std::move(recipe),
                      .plan = std::move(plan),
                      .sequences = std::move(sequences),
                      .source = {.backend = source.backend.get(), .config = &source.config},
                      .work = *arguments.text("work")};
  install_interrupt_flag();
  const Result<std::vector<FormatRow>> made = measure_all(inputs, terminal);
  if (!made.ok() && made.error().code == ErrorCode::cancelled) return kExitInterrupted;
  const std::vector<FormatRow> rows = TRY(made);
  TRY(terminal.out(markdown_table(format_table(rows))));
  if (const auto path = arguments.text("json"))
    TRY(write_file_atomically(*path, format_json(rows).dump_pretty()));
  return kExitOk;
}

Result<void> check(const Arguments& arguments) {
  TRY(read_request(arguments));
  return {};
}

}  // namespace

const Verb kBenchFormatsVerb = {.name = "bench formats",
                                .positionals = "DIR TEXT...",
                                .summary = "The same linears in several weight formats, compared",
                                .options = kOptions,
                                .run = run,
                                .check = check};

}  // namespace nibble
