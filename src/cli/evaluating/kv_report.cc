// Findings as words and as JSON.
#include "cli/evaluating/kv_report.h"

#include "base/concat.h"
#include "plan/text_table.h"

namespace nibble {
namespace {

std::string_view recommended_option(const std::vector<KvFinding>& findings,
                                    const KvLimits& limits) {
  const KvFinding* best = recommended_kv(findings, limits);
  return best == nullptr ? "bf16" : kv_traits(best->format).option;
}

std::string points_text(double share) { return fixed_text(100.0 * share, 2); }

/// Rows of tasks, then of positions.
std::vector<std::vector<std::string>> rows_of(const KvFinding& finding) {
  std::vector<std::vector<std::string>> rows;
  const std::string name = kv_traits(finding.format).option;
  for (const KvTask& task : finding.tasks)
    rows.push_back({name, task.name, concat(task.right, " of ", task.scored, " right"),
                    concat(points_text(task.difference.delta), " points"),
                    concat(points_text(task.difference.interval.low), " to ",
                           points_text(task.difference.interval.high))});
  for (const KlAtPositions& kl : finding.kl)
    rows.push_back({name, concat("KL, positions ", kl.begin, " to ", kl.end - 1),
                    concat(kl.rows, " rows"), scientific_text(kl.mean, 2),
                    concat(scientific_text(kl.interval.low, 2), " to ",
                           scientific_text(kl.interval.high, 2))});
  return rows;
}

Json interval_json(const Interval& interval) {
  return Json(Json::Array{Json(interval.low), Json(interval.high)});
}

Json finding_json(const KvFinding& finding, const KvLimits& limits) {
  Json tasks = Json::Array{};
  for (const KvTask& task : finding.tasks)
    tasks.push_back(json_object({{"task", task.name},
                                 {"right", task.right},
                                 {"scored", task.scored},
                                 {"difference", task.difference.delta},
                                 {"interval", interval_json(task.difference.interval)},
                                 {"p_value", task.difference.p_value}}));
  Json positions = Json::Array{};
  for (const KlAtPositions& kl : finding.kl)
    positions.push_back(json_object({{"begin", kl.begin},
                                     {"end", kl.end},
                                     {"rows", kl.rows},
                                     {"sequences", kl.sequences},
                                     {"kl_mean", kl.mean},
                                     {"interval", interval_json(kl.interval)}}));
  const KvJudgement judgement = judge_kv(finding, limits);
  return json_object({{"format", kv_traits(finding.format).option},
                      {"bytes_of_a_token", finding.token_bytes},
                      {"verdict", std::string(kv_verdict_name(judgement.verdict))},
                      {"why", judgement.why},
                      {"errors", json_object({{"keys", finding.errors.keys},
                                              {"values", finding.errors.values},
                                              {"key_norm", finding.errors.key_norm}})},
                      {"tasks", std::move(tasks)},
                      {"positions", std::move(positions)}});
}

}  // namespace

std::string kv_report_text(const KvReport& report) {
  const auto& [findings, limits, bf16_bytes] = report;
  std::vector<std::vector<std::string>> rows = {
      {"pages", "measured", "of", "against bf16", "95 % interval"}};
  std::vector<std::vector<std::string>> verdicts = {{"pages", "bytes of a token", "verdict", ""}};
  verdicts.push_back({"bf16", concat(bf16_bytes), "", ""});
  for (const KvFinding& finding : findings) {
    for (auto& row : rows_of(finding)) rows.push_back(std::move(row));
    const KvJudgement judgement = judge_kv(finding, limits);
    verdicts.push_back({kv_traits(finding.format).option, concat(finding.token_bytes),
                        std::string(kv_verdict_name(judgement.verdict)), judgement.why});
  }
  constexpr auto kLeft = ColumnSide::left;
  constexpr auto kRight = ColumnSide::right;
  return concat(text_table(rows, {kLeft, kLeft, kRight, kRight, kRight}), "\n",
                text_table(verdicts, {kLeft, kRight, kLeft, kLeft}),
                "\nrecommended: ", "--kv-cache-dtype ", recommended_option(findings, limits), "\n");
}

Json kv_report_json(const KvReport& report) {
  const auto& [findings, limits, bf16_bytes] = report;
  Json formats = Json::Array{};
  for (const KvFinding& finding : findings) formats.push_back(finding_json(finding, limits));
  return json_object({{"bf16_bytes_of_a_token", bf16_bytes},
                      {"limits", json_object({{"points", limits.points}, {"kl", limits.kl}})},
                      {"formats", std::move(formats)},
                      {"recommended", std::string(recommended_option(findings, limits))}});
}

}  // namespace nibble
