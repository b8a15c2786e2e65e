// The findings of a run of tasks, as rows with their intervals: for one model, or for two over the
// same items. Text for people and JSON for programs.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "eval/confidence.h"
#include "eval/task_check.h"
#include "eval/task_item.h"

namespace nibble {

/// How an item went under one model. failed: no answer that can be judged; never averaged in.
enum class Outcome : uint8_t { wrong, right, unscored, failed };

struct ModelOutcomes {
  std::string name;
  std::vector<Outcome> outcomes;  // one for each item
  int64_t cut = 0;                // answers that a limit of tokens ended
};

/// A share of right answers among those that were scored.
struct ScoredShare {
  int64_t right = 0;
  int64_t scored = 0;
  int64_t failed = 0;
  Interval interval;
  double percent() const;
};

struct ReportRow {
  std::string task;  // with the mode, if the task has both: "add, thinking"; "all"
  int64_t unscored = 0;
  std::vector<ScoredShare> shares;  // one for each model
  PairedCounts counts;              // of two models
  PairedDifference difference;
};

/// Rows in the order of the items, then "all"; `models` are one or two.
std::vector<ReportRow> report_rows(const std::vector<TaskItem>& items,
                                   const std::vector<ModelOutcomes>& models);

std::string report_text(const std::vector<ReportRow>& rows,
                        const std::vector<ModelOutcomes>& models);
Json report_json(const std::vector<ReportRow>& rows, const std::vector<ModelOutcomes>& models);

}  // namespace nibble
