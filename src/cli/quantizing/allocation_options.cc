// The target is checked before data is read, and memory before the sweep.
#include "cli/quantizing/allocation_options.h"

#include <charconv>
#include <cmath>

#include "cli/quantizing/calibration_options.h"
#include "quantize/calibrate/embedded_samples.h"

namespace nibble {
namespace {

struct Unit {
  std::string_view name;
  double bytes;
};
constexpr Unit kUnits[] = {{"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
                           {"KB", 1e3},     {"kB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
                           {"TB", 1e12},    {"B", 1}};

Result<double> positive_number(const Arguments& arguments, std::string_view name) {
  constexpr double kMost = 1e6;
  const double value = TRY(arguments.number(name, 0, kMost));
  if (value > 0) return value;
  return make_error(ErrorCode::invalid_argument,
                    {.what = concat("--", name), .expected = "more than 0", .found = "0"});
}

/// The data, what it is run through, and the sweep's options.
struct Sweep {
  ModelConfig config;
  Weights weights;
  CalibrationData data;
  FisherOptions options;
};

/// Fewer states at once, until the sweep fits.
Result<void> fit_sweep(const QuantPlan& plan, int64_t bytes_max, Sweep& sweep) {
  const auto needed = [&] {
    return format_loss_bytes(plan) + fisher_state_bytes(sweep.data.tokens(), sweep.data.longest(),
                                                        sweep.config, sweep.options);
  };
  while (bytes_max > 0 && needed() > bytes_max) {
    const int64_t before = needed();
    sweep.options.states_bytes_max =
        fisher_state_bytes(sweep.data.tokens(), sweep.data.longest(), sweep.config, sweep.options) /
        2;
    if (needed() < before) continue;
    return make_error(ErrorCode::no_memory, {.what = "--memory-limit with a target",
                                             .expected = concat("at least ", before,
                                                                " bytes for the sweep that finds "
                                                                "the losses"),
                                             .found = concat(bytes_max),
                                             .advice = "use shorter samples (--calib-length)"});
  }
  return {};
}

Result<FormatLosses> run_sweep(const AllocationWork& work, const AllocationCandidates& candidates,
                               const Sweep& sweep, Terminal& terminal) {
  const LayerSamples samples =
      TRY(embedded_samples(work.checkpoint, sweep.weights, sweep.config, sweep.data));
  Progress progress(terminal, {.label = "losses", .unit = "rows", .display = work.display});
  const InterruptFlag flag;
  const int64_t total = fisher_rows(sweep.data.tokens(), sweep.config);
  int64_t done = 0;
  FormatLosses losses = TRY(gather_format_losses(
      {.weights = sweep.weights,
       .config = sweep.config,
       .samples = samples,
       .wants = [&](const std::string& module) { return candidates.contains(module); },
       .options = sweep.options,
       .watch = {
           .check = []() -> Result<void> {
             if (!interrupted()) return {};
             return Error{ErrorCode::cancelled, "stopped; the same command begins this part again"};
           },
           .rows_done =
               [&](int64_t rows) {
                 done += rows;
                 progress.update(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
               }}}));
  progress.finish();
  return losses;
}

}  // namespace

std::optional<int64_t> read_byte_count(std::string_view text) {
  for (const Unit& unit : kUnits) {
    if (!text.ends_with(unit.name)) continue;
    std::string_view digits = text.substr(0, text.size() - unit.name.size());
    while (digits.ends_with(' ')) digits.remove_suffix(1);
    double value = 0;
    const char* end = digits.data() + digits.size();
    const auto [at, failure] = std::from_chars(digits.data(), end, value, std::chars_format::fixed);
    constexpr double kMost = 9e18;
    if (failure != std::errc() || at != end || !(value >= 0) || !(value * unit.bytes <= kMost))
      return {};
    return static_cast<int64_t>(value * unit.bytes);
  }
  return read_size(text);
}

Result<std::optional<AllocationTarget>> read_allocation_target(const Arguments& arguments) {
  const bool by_bytes = arguments.given("target-bytes"), by_kl = arguments.given("target-kl");
  std::optional<AllocationTarget> target;
  if (!by_bytes && !by_kl) return target;
  if (by_bytes && by_kl)
    return make_error(ErrorCode::invalid_argument, {.what = "--target-bytes and --target-kl",
                                                    .expected = "one of both",
                                                    .found = "two targets"});
  const std::string_view name = by_bytes ? "target-bytes" : "target-kl";
  if (!arguments.given("calib"))
    return make_error(ErrorCode::invalid_argument,
                      {.what = concat("--", name),
                       .expected = "data that losses are predicted with",
                       .found = "none",
                       .advice = "add --calib FILE.jsonl"});
  target.emplace();
  const std::string text = *arguments.text(name);
  if (by_kl) {
    target->kl = TRY(positive_number(arguments, name));
    target->text = concat("--target-kl ", text);
    return target;
  }
  target->bytes = read_byte_count(text);
  if (!target->bytes || *target->bytes < 0)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "--target-bytes",
                       .expected = "a size such as 22GB, 18.5GiB or 20000000",
                       .found = concat("\"", text, "\"")});
  target->text = concat("--target-bytes ", *target->bytes);
  return target;
}

Result<AllocatedRecipe> allocate_formats(const AllocationWork& work, Terminal& terminal) {
  const QuantPlan plan = TRY(plan_quantization(work.checkpoint, work.recipe, work.dialect));
  const AllocationCandidates candidates = TRY(AllocationCandidates::find(plan, work.recipe));
  TRY(candidates.check(work.target));
  Sweep sweep;
  sweep.config = TRY(ModelConfig::parse(work.checkpoint.config()));
  sweep.weights = TRY(Weights::bind(work.checkpoint, sweep.config));
  sweep.data = TRY(read_calibration_data(work.arguments, work.checkpoint, sweep.config));
  sweep.options.threads = work.threads;
  TRY(fit_sweep(plan, work.memory_bytes_max, sweep));
  terminal.err(concat("losses of NVFP4 and FP8: ", sweep.data.samples.size(), " samples, ",
                      sweep.data.tokens(), " tokens, a backward pass on the CPU\n"));
  const FormatLosses losses = TRY(run_sweep(work, candidates, sweep, terminal));
  AllocatedRecipe out;
  out.allocation = TRY(candidates.choose(losses, work.target));
  out.allocation.tokens = sweep.data.tokens();
  out.allocation.data_hash = sweep.data.hash();
  out.recipe = TRY(candidates.recipe(out.allocation));
  return out;
}

}  // namespace nibble
