// nibble verify: sound or not, and why; against its source, how far from it.
#include "quantize/verify/verify.h"

#include <cstdio>
#include <optional>

#include "cli/quantizing/verify_against.h"
#include "cli/verb.h"

namespace nibble {
namespace {

constexpr auto kOwnOptions = std::to_array<Option>({
    {"limit", "N", "100", "findings to print; 0 prints all"},
    {"headers", "", "", "names, types, shapes and config only: no values are read"},
    {"against", "SRC", "",
     "the unquantized checkpoint: error of every matrix, identity of the rest"},
    {"text", "FILE", "",
     "with --against: KL divergence, top-1 agreement and perplexity on this text"},
    {"max-tokens", "N", "4096", "most tokens of that text"},
    {"card", "", "", "with --text: write the figures into the checkpoint's README.md"},
    {"max-error", "E", "0.15", "largest relative error of a matrix"},
    {"max-kl", "KL", "0.1", "largest mean KL divergence"},
    {"min-top1", "SHARE", "0.85", "least share of positions with the same likeliest token"},
});

constexpr auto kOptions = joined_options(kOwnOptions, kModelOptions);

std::string_view severity_name(Severity severity) {
  return severity == Severity::error ? "error" : "warning";
}

std::string findings_text(const VerifyReport& report, int64_t limit) {
  std::string text;
  int64_t printed = 0;
  for (const Severity severity : {Severity::error, Severity::warning}) {
    for (const Finding& finding : report.findings) {
      if (finding.severity != severity || (limit > 0 && printed >= limit)) continue;
      text += concat(severity_name(severity), ": ", finding.subject, ": ", finding.text, "\n");
      ++printed;
    }
  }
  const auto all = static_cast<int64_t>(report.findings.size());
  if (printed < all) text += concat("... and ", all - printed, " more (--limit 0 prints all)\n");
  return text;
}

/// How far the folder could be held against hashes, as a line; empty if there is nothing to say.
std::string hashes_text(const VerifyReport& report) {
  if (report.hashed == VerifyReport::Hashed::compared)
    return "every tensor and file was compared with its hash in quantize_hashes.json\n";
  if (report.hashed == VerifyReport::Hashed::not_kept)
    return "quantize_report.json names no hashes (an older nibble wrote it): whether bytes changed "
           "since is not known\n";
  return "";
}

Result<int> run(const Arguments& arguments, Terminal& terminal) {
  const int64_t limit = TRY(arguments.integer("limit", 0, int64_t{1} << 40));
  const std::string folder = TRY(first_folder(arguments, terminal)).string();
  VerifyOptions options;
  if (arguments.enabled("headers")) options.depth = VerifyDepth::headers;
  Progress progress(terminal, {.label = "verify", .unit = "MB", .unit_scale = 1e6});
  options.progress = [&](int64_t done, int64_t total) {
    progress.update(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
  };
  const VerifyReport report = TRY(verify_checkpoint(folder, options));
  progress.finish();
  TRY(terminal.out(findings_text(report, limit)));
  TRY(terminal.out(hashes_text(report)));
  TRY(terminal.out(concat(
      folder, report.sound() ? " is sound: " : " is not sound: ", report.tensors, " tensors, ",
      report.bytes, " bytes, ", report.quantized_modules, " quantized linears; ",
      report.count(Severity::error), " errors, ", report.count(Severity::warning), " warnings\n")));
  if (!report.sound() || !arguments.given("against"))
    return report.sound() ? kExitOk : kExitFailure;
  return verify_against(arguments, folder, terminal);
}

}  // namespace

const Verb kVerifyVerb = {.name = "verify",
                          .positionals = "DIR",
                          .summary = "Tells whether a checkpoint is sound, and why not",
                          .options = kOptions,
                          .run = run};

}  // namespace nibble
