// Weighs what drafts and their rows are worth against what they were seen to cost.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/planted_bug.h"
#include "engine/schedule/scheduler.h"

namespace nibble {

/// A drafted row is worth the chance that it gives a token times what a token costs without it.
void Scheduler::grant_drafts(std::span<const SequenceView> sequences) {
  const auto decode_rows = static_cast<int32_t>(schedule_.rows.size());
  const bool all_rows = turns_.empty() || planted(kBugDraftsStopPrompts);
  const int32_t kept = all_rows ? 0 : kPageTokens;
  int32_t rows_left = limits_.rows_max - kept - decode_rows;
  const double worth_ms = token_ms(decode_rows);
  const int32_t rows_before = rows_left;
  bool refused = false;
  for (ScheduledRows& piece : schedule_.rows) {
    const SequenceView& s = sequences[static_cast<size_t>(piece.sequence)];
    double odds = s.draft_odds;
    for (int32_t i = 0; i < s.drafts && rows_left > 0; ++i, odds *= s.draft_odds) {
      if (!s.draft_is_trial && odds * worth_ms < draft_costs_.row_ms(decode_rows)) {
        refused = true;
        break;
      }
      ++piece.rows;
      --rows_left;
    }
  }
  if (refused && rows_left == rows_before) draft_costs_.forget_rows(decode_rows);
  decoding_ = decode_rows;
}

void Scheduler::charge_rejected(uint64_t tenant, Proposer by, int32_t rows) {
  if (planted(kBugRejectedRowsAreFree)) return;
  double row_ms = draft_costs_.row_ms(decoding_);
  if (by == Proposer::model) row_ms += draft_costs_.draft_ms(decoding_);
  shares_.charge(tenant, row_ms * rows);
}

double Scheduler::token_ms(int32_t decode_rows) const {
  return cost_.ms({.decode_rows = decode_rows}) / std::max(decode_rows, 1);
}

void Scheduler::observe(const PassShape& shape, double ms) {
  constexpr double kNear = 0.1;
  const double expected = cost_.ms(shape);
  cost_.observe(shape, ms);
  if (shape.decode_rows == 0) return;
  const bool alone = shape.prefill_tokens == 0;
  if (shape.drafted_rows > 0 && alone) {
    const double plain_ms = cost_.ms({.decode_rows = shape.decode_rows});
    draft_costs_.observe_rows(shape.decode_rows, shape.drafted_rows, ms - plain_ms, plain_ms);
  } else if (shape.drafted_rows > 0) {
    draft_costs_.miss_rows(shape.decode_rows);
  } else if (plain_passes_left_ > 0) {
    const bool near = ms <= 0.0 || std::abs(ms - expected) <= kNear * std::max(ms, expected);
    plain_passes_left_ = alone && near ? 0 : plain_passes_left_ - 1;
  }
}

void Scheduler::observe_drafts(int32_t decoding, int32_t steps, double ms) {
  draft_costs_.observe_drafts(decoding, steps, ms, cost_.ms({.decode_rows = decoding}));
}

Scheduler::DraftsWorth Scheduler::drafts_worth(Proposer by, int32_t most, double odds,
                                               int32_t decoding) const {
  const double token_worth_ms = token_ms(decoding);
  double cost_ms = draft_costs_.row_ms(decoding);
  if (by == Proposer::model) {
    cost_ms += draft_costs_.draft_ms(decoding);
    if (!draft_costs_.known(decoding)) most = std::min(most, 1);
    if (plain_passes_left_ > 0) most = 0;
  }
  DraftsWorth worth;
  for (double chance = odds; worth.count < most; ++worth.count, chance *= odds) {
    if (chance * token_worth_ms < cost_ms) break;
    worth.gain_ms += chance * token_worth_ms - cost_ms;
  }
  return worth;
}

double Scheduler::step_gain_ms(std::span<const double> odds, int32_t step, int32_t decoding) const {
  double gain_ms = -draft_costs_.step_ms(decoding);
  for (const double each : odds)
    gain_ms += std::pow(each, step) * token_ms(decoding) - draft_costs_.row_ms(decoding);
  return gain_ms;
}

double Scheduler::draft_cost_tokens(int32_t decoding) const {
  if (plain_passes_left_ > 0) return std::numeric_limits<double>::infinity();
  return (draft_costs_.row_ms(decoding) + draft_costs_.draft_ms(decoding)) / token_ms(decoding);
}

}  // namespace nibble
