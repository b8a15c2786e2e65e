// The report of several models on one card.
#include "model/batch.h"
#include "plan/plan_report.h"
#include "plan/plan_text.h"
#include "plan/text_table.h"

namespace nibble {
namespace {

int64_t planned_bytes(const std::vector<SharedPlan>& plans) {
  int64_t bytes = 0;
  for (const SharedPlan& plan : plans) bytes += plan.report.plan.memory_bytes;
  return bytes;
}

std::string model_line(const SharedPlan& shared) {
  const PlanReport& report = shared.report;
  return concat("  ", report.model, " (", report.made_of, "), KV in ", report.kv_format, "\n");
}

std::vector<std::string> row_of(const SharedPlan& shared) {
  const PlanReport& report = shared.report;
  const MemoryPlan& plan = report.plan;
  const double rate = report.speeds.empty() ? 0 : report.speeds.front().tokens_per_second;
  return {report.model,
          shared.share,
          plan_megabytes(plan.memory_bytes),
          plan_megabytes(plan.weight_bytes),
          concat(report.longest_context),
          concat(int64_t{plan.pools.pages} * kPageTokens),
          concat(plan.sequences_max),
          rate > 0 ? fixed_text(rate, 0) : ""};
}

}  // namespace

std::string shared_text(const std::vector<SharedPlan>& plans) {
  const PlannedCard& card = *plans.front().report.card;
  std::string text = concat(plans.size(), " models together on ", card.name, ", ", card.label,
                            ", each in a server of its own\n");
  std::vector<std::vector<std::string>> rows = {
      {"model", "share", "memory", "weights", "longest", "KV tokens", "at once", "1 stream"}};
  for (const SharedPlan& plan : plans) {
    text += model_line(plan);
    rows.push_back(row_of(plan));
  }
  const std::vector<ColumnSide> sides = {ColumnSide::left,  ColumnSide::right, ColumnSide::right,
                                         ColumnSide::right, ColumnSide::right, ColumnSide::right,
                                         ColumnSide::right, ColumnSide::right};
  return concat(text, "\n", text_table(rows, sides), "together ",
                plan_megabytes(planned_bytes(plans)), " of ", plan_megabytes(card.memory_bytes),
                "; tokens/s at most while the others rest, computed from bytes and bandwidth\n"
                "\nshare: give each server --gpu-memory-utilization SHARE and a --port of its own. "
                "Each has the\nleast that it starts with and an equal part of the rest. `nibble "
                "plan MODEL --gpu ",
                card.name, "\n--gpu-memory-utilization SHARE` shows one of them whole.\n");
}

Json shared_json(const std::vector<SharedPlan>& plans) {
  const PlannedCard& card = *plans.front().report.card;
  Json models{Json::Array{}};
  for (const SharedPlan& plan : plans)
    models.push_back(
        json_object({{"gpu_memory_utilization", plan.share}, {"plan", plan_json(plan.report)}}));
  return json_object({{"card", card.name},
                      {"card_bytes", card.memory_bytes},
                      {"planned_bytes", planned_bytes(plans)},
                      {"models", std::move(models)}});
}

}  // namespace nibble
