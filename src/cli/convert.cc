// nibble convert: the other NVFP4 dialect, another head, or a declaration made anew.
#include "quantize/convert/convert.h"

#include <cstdio>
#include <filesystem>

#include "cli/options/folders.h"
#include "quantize/convert/convert_head.h"
#include "quantize/convert/repair_config.h"

namespace nibble {
namespace {

constexpr Option kOptions[] = {
    {"format", "DIALECT", "", "the other dialect: compressed-tensors or modelopt"},
    {"head", "FORMAT", "", "another head instead: bf16, fp8-block or nvfp4; needs --source"},
    {"repair", "", "",
     "write quantization_config anew, so that other engines match it; weights are shared"},
    {"source", "DIR", "", "with --head: the unquantized checkpoint"},
    {"max-shard-size", "BYTES", "5G", "largest safetensors file; one larger tensor gets its own"},
    {"progress", "", "true", "show progress on standard error"},
    kRevisionOption,
};

std::string summary(const ConvertReport& report, Dialect target) {
  std::string text = concat(report.linears, " quantized linears are now in the ",
                            dialect_name(target), " dialect; ");
  text += report.inexact_scales == 0
              ? std::string("every weight is the same to the last bit\n")
              : concat(report.inexact_scales,
                       " FP32 scales have no exact reciprocal: weights under them moved by one "
                       "rounding (6e-8)\n");
  if (report.unread_scales > 0)
    text += concat(report.unread_scales,
                   " input scales of weight-only linears were left out: nothing reads them\n");
  return text;
}

Result<int> run_head(const Arguments& arguments, Terminal& terminal) {
  const HeadFormat format = TRY(parse_head_format(*arguments.text("head")));
  if (!arguments.given("source"))
    return make_error(ErrorCode::invalid_argument,
                      {.what = "--head",
                       .expected = "--source DIR with it, the unquantized checkpoint",
                       .found = "none"});
  const auto folder = TRY(first_folder(arguments, terminal));
  const Checkpoint checkpoint = TRY(Checkpoint::open(folder));
  const auto source_folder = TRY(checkpoint_folder(*arguments.text("source"), terminal));
  const Checkpoint source = TRY(Checkpoint::open(source_folder));
  const HeadReport report = TRY(convert_head(checkpoint, source, format, arguments.positional(1)));
  char error[32];
  std::snprintf(error, sizeof error, "%.3f %%", 100 * report.relative_error);
  TRY(terminal.out(concat("lm_head: ", report.bytes_before, " -> ", report.bytes_after,
                          " bytes, relative error ", error, "; ", report.linked_files,
                          " other weight files are shared with ", arguments.positional(0), "\n")));
  return kExitOk;
}

Result<int> run_repair(const Arguments& arguments, Terminal& terminal) {
  const auto folder = TRY(first_folder(arguments, terminal));
  const Checkpoint checkpoint = TRY(Checkpoint::open(folder));
  const RepairReport report = TRY(repair_config(checkpoint, arguments.positional(1)));
  TRY(terminal.out(concat("config.json declares ", report.linears, " quantized linears anew; ",
                          report.linked_files, " weight files are shared with ",
                          arguments.positional(0), "\n")));
  return kExitOk;
}

Result<int> run(const Arguments& arguments, Terminal& terminal) {
  std::string asked;
  for (const std::string_view option : {"format", "head", "repair"})
    if (arguments.given(option)) asked += concat(asked.empty() ? "--" : " and --", option);
  if (asked.empty() || asked.find(' ') != std::string::npos)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "what to convert",
                       .expected = "one of --format DIALECT, --head FORMAT and --repair",
                       .found = asked.empty() ? "none" : asked});
  if (arguments.given("head")) return run_head(arguments, terminal);
  if (arguments.given("repair")) return run_repair(arguments, terminal);
  const Dialect target = TRY(parse_dialect(*arguments.text("format")));
  ConvertOptions options{.cancelled = interrupted};
  options.shard_bytes_max = TRY(arguments.integer("max-shard-size", 1 << 20, int64_t{1} << 50));
  const auto folder = TRY(first_folder(arguments, terminal));
  const Checkpoint checkpoint = TRY(Checkpoint::open(folder));
  const auto display =
      arguments.enabled("progress") ? Progress::Display::shown : Progress::Display::hidden;
  Progress progress(terminal,
                    {.label = "convert", .unit = "MB", .unit_scale = 1e6, .display = display});
  options.progress = [&](int64_t done, int64_t total) {
    progress.update(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
  };
  install_interrupt_flag();
  const ConvertReport report = TRY(convert(checkpoint, target, arguments.positional(1), options));
  progress.finish();
  TRY(terminal.out(summary(report, target)));
  return kExitOk;
}

}  // namespace

const Verb kConvertVerb = {
    .name = "convert",
    .positionals = "SRC DST",
    .summary = "Rewrites a checkpoint in the other dialect, with another head or a repaired config",
    .options = kOptions,
    .run = run};

}  // namespace nibble
