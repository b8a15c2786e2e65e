// nibble quantize: estimate, work with a progress bar, table, verification.
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "cli/loading/thread_count.h"
#include "cli/options/folders.h"
#include "cli/quantizing/allocation_options.h"
#include "cli/quantizing/calibration_options.h"
#include "cli/quantizing/quantize_work.h"
#include "cli/verb.h"
#include "quantize/verify/verify_output.h"

namespace nibble {
namespace {

constexpr Option kOptions[] = {
    {"recipe", "NAME|FILE", kDefaultRecipe,
     "the format of each linear: mixed, mixed-nvfp4-head, w4a16, w4a4, w4a4-fp8-head, "
     "experts-only, fp8, lab-fp8-embed, or a YAML file"},
    {"format", "DIALECT", "compressed-tensors", "compressed-tensors or modelopt"},
    {"algorithm", "NAME", "search",
     "rounding of 4-bit weights: search, amax, four-over-six; with --calib diagonal, blocks or "
     "gptq, which rounds 8-bit weights with data too"},
    kCalibOption,
    kCalibFolderOption,
    kCalibSamplesOption,
    kCalibLengthOption,
    kCalibSeedOption,
    kCalibMapOption,
    kSecondMomentsOption,
    kCalibBackendOption,
    kTargetBytesOption,
    kTargetKlOption,
    {"max-shard-size", "BYTES", "5G", "largest safetensors file; one larger tensor gets its own"},
    {"one-file", "", "",
     "write model.safetensors alone; default: shards, and own files for head and MTP"},
    {"memory-limit", "BYTES", "", "take no more than this in addition to the program, or refuse"},
    {"journal-every", "SECONDS", "2", "a kill costs at most the work of this time"},
    kThreadsOption,
    {"dry-run", "", "",
     "show what would become of each kind of tensor, and the costs; write nothing"},
    {"progress", "", "true", "show progress on standard error"},
    kRevisionOption,
};

struct Request {
  std::filesystem::path source;
  std::filesystem::path output;
  Recipe recipe;
  Dialect dialect = Dialect::compressed_tensors;
  QuantizeOptions options;
  int64_t memory_limit = 0;  // 0: none
  std::optional<AllocationTarget> target;
  std::optional<Allocation> allocation = {};  // once it is made
};

Result<Request> read_request(const Arguments& arguments, Terminal& terminal) {
  Request request{.output = arguments.positional(1)};
  request.recipe = TRY(load_recipe(*arguments.text("recipe")));
  request.dialect = TRY(parse_dialect(*arguments.text("format")));
  request.options.algorithm = TRY(parse_round_algorithm(*arguments.text("algorithm")));
  request.options.shard_bytes_max =
      TRY(arguments.integer("max-shard-size", 1 << 20, int64_t{1} << 50));
  request.options.threads = TRY(read_threads(arguments));
  if (arguments.enabled("one-file")) request.options.files = OutputFiles::one;
  request.options.journal_seconds = TRY(arguments.number("journal-every", 0, 3600));
  if (arguments.given("memory-limit"))
    request.memory_limit = TRY(arguments.integer("memory-limit", 1, int64_t{1} << 50));
  request.target = TRY(read_allocation_target(arguments));
  request.source = TRY(first_folder(arguments, terminal));
  return request;
}

std::string megabytes(int64_t bytes) {
  char text[48];
  std::snprintf(text, sizeof text, "%.1f MB", static_cast<double>(bytes) / 1e6);
  return text;
}

/// Bytes free where `output` will be.
int64_t free_bytes(std::filesystem::path output) {
  std::error_code failure;
  output = std::filesystem::absolute(output, failure);
  while (!std::filesystem::exists(output, failure) && output.has_relative_path())
    output = output.parent_path();
  const auto space = std::filesystem::space(output, failure);
  return failure ? 0 : static_cast<int64_t>(space.available);
}

std::string estimate(const Request& request, const QuantPlan& plan, const GptqDevice* device) {
  return concat("recipe ", request.recipe.name, " (", recipe_status_name(request.recipe.status),
                "), format ", dialect_name(plan.dialect), ": reads ", megabytes(plan.bytes_in),
                ", writes ", megabytes(plan.bytes_out), " (disk has ",
                megabytes(free_bytes(request.output)), " free), memory at most ",
                megabytes(quantize_memory_bytes(plan, request.options, device)), ", ",
                request.options.threads, request.options.threads == 1 ? " thread\n" : " threads\n");
}

/// The recipe becomes the one that meets the target, if there is one.
Result<void> allocate(const Arguments& arguments, const Checkpoint& checkpoint, Request& request,
                      Terminal& terminal) {
  if (!request.target) return {};
  const bool shown = arguments.enabled("progress");
  auto made = TRY(
      allocate_formats({.arguments = arguments,
                        .checkpoint = checkpoint,
                        .recipe = request.recipe,
                        .dialect = request.dialect,
                        .target = *request.target,
                        .threads = request.options.threads,
                        .memory_bytes_max = request.memory_limit,
                        .display = shown ? Progress::Display::shown : Progress::Display::hidden},
                       terminal));
  request.recipe = std::move(made.recipe);
  request.allocation = std::move(made.allocation);
  request.options.allocation = &*request.allocation;
  return terminal.out(request.allocation->table());
}

/// Kinds and costs without the work.
Result<int> dry_run(const Request& request, const QuantPlan& plan, Terminal& terminal) {
  const QuantizeReport report = start_report(plan, request.recipe, request.options.algorithm);
  TRY(terminal.out(report.table()));
  return kExitOk;
}

/// Checks what was written; its findings are part of the result.
Result<int> check_output(const std::filesystem::path& output, Progress::Display display,
                         Terminal& terminal) {
  VerifyOptions options;
  Progress progress(terminal,
                    {.label = "verify", .unit = "MB", .unit_scale = 1e6, .display = display});
  options.progress = [&](int64_t done, int64_t total) {
    progress.update(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
  };
  const VerifyReport report = TRY(verify_output(output, options));
  progress.finish();
  std::string text;
  for (const Finding& finding : report.findings)
    text += concat(finding.severity == Severity::error ? "error: " : "warning: ", finding.subject,
                   ": ", finding.text, "\n");
  TRY(terminal.out(concat(text, output.string(),
                          report.sound() ? " is sound: " : " is NOT sound: ", report.tensors,
                          " tensors, ", report.quantized_modules, " quantized linears\n")));
  if (!report.sound())
    terminal.err("its config.json was removed, so that nothing takes it for a checkpoint\n");
  return report.sound() ? kExitOk : kExitFailure;
}

Result<int> run(const Arguments& arguments, Terminal& terminal) {
  Request request = TRY(read_request(arguments, terminal));
  const Checkpoint checkpoint = TRY(Checkpoint::open(request.source));
  TRY(allocate(arguments, checkpoint, request, terminal));
  const QuantPlan plan = TRY(plan_quantization(checkpoint, request.recipe, request.dialect));
  const CalibrationNeeds needs{.algorithm = request.options.algorithm,
                               .second_moments = request.recipe.second_moments,
                               .threads = request.options.threads};
  const auto calibration = TRY(prepare_calibration(arguments, checkpoint, plan, needs));
  const GptqDevice* device = calibration == nullptr ? nullptr : calibration->gptq_device();
  int64_t rest = 0;  // for the calibration; 0: no limit
  if (const int64_t limit = request.memory_limit; limit > 0) {
    // With data, half of the memory is for the calibration.
    TRY(fit_memory(plan, calibration == nullptr ? limit : limit / 2, device, request.options));
    rest = std::max<int64_t>(1, limit - quantize_memory_bytes(plan, request.options, device));
  }
  if (calibration != nullptr) TRY(calibration->start(checkpoint, rest));
  terminal.err(estimate(request, plan, device));
  if (calibration != nullptr) {
    terminal.err(calibration->text());
    request.options.calibration = &*calibration->run;
    request.options.data_hash = calibration->hash();
    if (calibration->fisher)
      request.options.second_moments = second_moments_text(*calibration->fisher);
  }
  if (arguments.enabled("dry-run")) return dry_run(request, plan, terminal);

  const auto display =
      arguments.enabled("progress") ? Progress::Display::shown : Progress::Display::hidden;
  const QuantizeReport report = TRY(quantize_watched({.checkpoint = checkpoint,
                                                      .plan = plan,
                                                      .recipe = request.recipe,
                                                      .output = request.output,
                                                      .options = request.options,
                                                      .display = display},
                                                     terminal));
  if (calibration != nullptr) terminal.err(calibration->seconds_text());
  TRY(terminal.out(report.table()));
  return check_output(request.output, display, terminal);
}

}  // namespace

const Verb kQuantizeVerb = {.name = "quantize",
                            .positionals = "SRC DST",
                            .summary = "Makes an NVFP4 checkpoint of a BF16 one",
                            .options = kOptions,
                            .run = run};

}  // namespace nibble
