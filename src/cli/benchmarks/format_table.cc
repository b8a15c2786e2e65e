// The rule of a format stands in the last column: it is the longest.
#include "cli/benchmarks/format_table.h"

#include "cli/benchmarks/bench_machine.h"
#include "plan/text_table.h"

namespace nibble {
std::vector<std::vector<std::string>> format_table(const std::vector<FormatRow>& rows) {
  std::vector<std::vector<std::string>> table = {{"format", "bits a weight", "relative error",
                                                  "perplexity", "KL mean", "KL p99",
                                                  "same likeliest token", "rule"}};
  const double before = rows.front().scores.reference_text->perplexity();
  table.push_back({"as it is", "16.00", "0", fixed_text(before, 4), "0", "0", "100 %", ""});
  for (const FormatRow& row : rows) {
    const DivergenceSummary& d = *row.scores.divergence;
    table.push_back({row.format, fixed_text(row.bits, 2), scientific_text(row.relative_error, 2),
                     fixed_text(row.scores.text.perplexity(), 4), scientific_text(d.kl_mean, 2),
                     scientific_text(d.kl_p99, 2),
                     concat(fixed_text(100.0 * d.top1_agreement, 2), " %"), row.rule});
  }
  return table;
}

Json format_json(const std::vector<FormatRow>& rows) {
  Json::Array list;
  for (const FormatRow& row : rows) {
    const DivergenceSummary& d = *row.scores.divergence;
    list.push_back(json_object({{"format", Json(row.format)},
                                {"rule", Json(row.rule)},
                                {"weights", Json(row.weights)},
                                {"bits_per_weight", Json(row.bits)},
                                {"relative_error", Json(row.relative_error)},
                                {"perplexity", Json(row.scores.text.perplexity())},
                                {"kl_mean", Json(d.kl_mean)},
                                {"kl_p99", Json(d.kl_p99)},
                                {"top1_agreement", Json(d.top1_agreement)},
                                {"positions", Json(d.positions)}}));
  }
  return json_object({{"machine", Json(bench_machine())},
                      {"perplexity", Json(rows.front().scores.reference_text->perplexity())},
                      {"formats", Json(std::move(list))}});
}

}  // namespace nibble
