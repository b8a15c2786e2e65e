// The report first, as all others follow from it; the hashes after them, as they cover them.
#include "quantize/quantize_papers.h"

#include <cstdlib>
#include <map>
#include <utility>

#include "base/file.h"
#include "quantize/report/model_card.h"

namespace nibble {
namespace {

constexpr uint64_t kReadmeBytesMax = uint64_t{4} << 20;

/// 3 of "model.language_model.layers.3.mlp.gate"; -1 of a linear in no layer.
int layer_of(const std::string& module) {
  const size_t at = module.find("layers.");
  return at == std::string::npos ? -1 : std::atoi(module.c_str() + at + 7);
}

void add_outcomes(QuantizeReport& report, const QuantPlan& plan,
                  const std::vector<std::vector<LinearOutcome>>& outcomes) {
  std::map<std::pair<std::string, std::string>, KindReport*> rows;
  std::map<std::pair<std::string, int>, RoundStatistics> layers;
  for (KindReport& row : report.kinds) rows[{row.kind, row.scheme}] = &row;
  for (size_t i = 0; i < plan.rounded.size(); ++i)
    for (size_t j = 0; j < plan.rounded[i].linears.size(); ++j) {
      const PlannedLinear& linear = plan.rounded[i].linears[j];
      rows.at({linear.kind, scheme_text(linear.becomes.scheme)})->rounding +=
          outcomes[i][j].statistics;
      layers[{linear.kind, layer_of(linear.source.module)}] += outcomes[i][j].statistics;
      if (!outcomes[i][j].fallback.empty())
        report.fallbacks.emplace_back(linear.source.module, outcomes[i][j].fallback);
    }
  for (const auto& [key, statistics] : layers)
    report.layers.push_back({.kind = key.first, .layer = key.second, .rounding = statistics});
}

/// The source's README.md, or empty.
Result<std::string> base_card(const Checkpoint& checkpoint) {
  const auto readme = checkpoint.folder() / "README.md";
  std::error_code failure;
  if (!std::filesystem::exists(readme, failure)) return std::string();
  return read_text_file(readme, kReadmeBytesMax);
}

/// Our README.md; the source's own is kept beside it.
Result<void> write_card(const Checkpoint& checkpoint, const QuantizeReport& report,
                        CheckpointWriter& writer) {
  const std::string base = TRY(base_card(checkpoint));
  if (!base.empty()) TRY(writer.add_file("README.base.md", base));
  return writer.add_file("README.md", model_card({.base_card = base,
                                                  .licence = licence_files(checkpoint.folder()),
                                                  .report = report,
                                                  .config = checkpoint.config()}));
}

QuantizeReport make_report(const Papers& papers, std::string base) {
  const RoundAlgorithm algorithm = papers.options.algorithm;
  QuantizeReport report = start_report(papers.plan, papers.recipe, algorithm);
  report.base = std::move(base);
  const Allocation* allocation = papers.options.allocation;
  const bool with_data = !papers.options.data_hash.empty() || allocation != nullptr;
  report.commands = {concat("nibble quantize ", report.base, " DST --recipe ",
                            allocation == nullptr
                                ? papers.recipe.name
                                : concat(allocation->recipe, " ", allocation->target),
                            " --format ", dialect_name(papers.plan.dialect), " --algorithm ",
                            round_algorithm_name(algorithm), with_data ? " --calib DATA" : "",
                            papers.options.second_moments.empty()
                                ? ""
                                : concat(" --second-moments ", papers.options.second_moments))};
  report.data_hash = papers.options.data_hash;
  report.hashes_file = kHashesFile;
  if (allocation != nullptr) report.allocation = allocation->json();
  add_outcomes(report, papers.plan, papers.outcomes);
  if (papers.options.calibration != nullptr)
    report.calibration = papers.options.calibration->json();
  finish_report(report);
  return report;
}

}  // namespace

Result<QuantizeReport> finish_output(Papers papers, CheckpointWriter& writer) {
  const Checkpoint& checkpoint = papers.checkpoint;
  const QuantPlan& plan = papers.plan;
  QuantizeReport report =
      make_report(papers, hub_name(checkpoint.folder(), TRY(base_card(checkpoint))));
  TRY(writer.copy_other_files(checkpoint.folder()));
  TRY(writer.add_file("recipe.yaml", recipe_file(papers.recipe.text, report)));
  TRY(writer.add_file("quantize_report.json", report.json().dump_pretty()));
  TRY(writer.add_file("quantize_report.svg", report.chart()));
  if (papers.options.allocation != nullptr)
    TRY(writer.add_file(kAllocationPicture, papers.options.allocation->chart()));
  TRY(write_card(checkpoint, report, writer));
  if (plan.dialect == Dialect::modelopt)
    TRY(writer.add_file("hf_quant_config.json", modelopt_file(plan.declaration).dump_pretty()));
  Json config = checkpoint.config();
  config.set("quantization_config", quantization_config(plan.declaration, plan.dialect));
  TRY(add_hashes(writer, std::move(papers.hashes), config));
  TRY(writer.finish(config));
  return report;
}

}  // namespace nibble
