// Decode first, then prompts by milliseconds. The policy is stated in docs/scheduling.md.
#include "engine/schedule/scheduler.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/planted_bug.h"

namespace nibble {

namespace {

constexpr int32_t kDecodePassesMax = 8;  // in a row, while a prompt waits
constexpr double kEncoderShare = 0.5;    // share of the time for prompts, while media are encoded
constexpr double kEncoderLeast = 0.1;    // least share of the time of a pass

int32_t whole_blocks_up(int32_t tokens) {
  return (tokens + kPageTokens - 1) / kPageTokens * kPageTokens;
}

/// The prompt rows that a sequence has pages for: a running one those of its own pages and of one
/// more if it asked for it; others all they need.
int32_t rows_with_pages(const SequenceView& s) {
  const int32_t left = std::min(s.prompt_size, s.prompt_ready) - s.cached;
  if (s.phase != Phase::prefill) return left;
  const int64_t held = std::max(int64_t{s.pages_held} * kPageTokens - s.cached, int64_t{0});
  return static_cast<int32_t>(std::min<int64_t>(left, held > 0 ? held : kPageTokens));
}

}  // namespace

Scheduler::Scheduler(const SchedulerLimits& limits, const CostModel& cost)
    : limits_(limits), cost_(cost), admission_(limits), shares_(limits.long_share) {
  CHECK(limits.rows_max >= limits.sequences_max + kPageTokens, "rows_max ", limits.rows_max,
        " for ", limits.sequences_max, " sequences");
  CHECK(limits.sequences_max >= 1 && limits.reserve_tokens >= 0 && limits.chunk_tokens_max >= 0,
        "sequences_max ", limits.sequences_max);
  CHECK(limits.step_ms > 0.0 && limits.prefill_step_ms > 0.0, "step_ms ", limits.step_ms);
  CHECK(limits.long_tokens >= 1, "long_tokens ", limits.long_tokens);
  CHECK(limits.long_share >= 0.0 && limits.long_share <= 1.0, "long_share ", limits.long_share);
}

const Schedule& Scheduler::next(std::span<const SequenceView> sequences, const FreeResources& free,
                                double now_ms) {
  const std::span<const Standing> standing = admission_.place(sequences, free, now_ms, schedule_);
  schedule_.rows.clear();
  turns_.clear();
  waiting_.clear();
  for (size_t i = 0; i < sequences.size(); ++i) {
    const SequenceView& s = sequences[i];
    if (standing[i] == Standing::decode)
      schedule_.rows.push_back({static_cast<int32_t>(i), 1, Arithmetic::generation});
    if (standing[i] != Standing::prefill) continue;
    CHECK(s.cached % kPageTokens == 0, "a prompt was cut at ", s.cached, " tokens");
    const PrefillTurn turn{.sequence = static_cast<int32_t>(i),
                           .depth = s.cached,
                           .tokens_left = s.prompt_size - s.cached,
                           .rows_max = rows_with_pages(s),
                           .priority = s.priority,
                           .size = size_class(s, limits_.long_tokens),
                           .tenant = s.tenant,
                           .weight = s.weight,
                           .ms_left = cost_.piece_ms(s.cached, s.prompt_size - s.cached),
                           .waited_ms = now_ms - s.arrival_ms};
    const bool waits = s.prompt_ready < s.prompt_size && s.prompt_ready - s.cached < kPageTokens;
    (waits ? waiting_ : turns_).push_back(turn);
  }
  grant_drafts(sequences);
  schedule_prefill();
  return schedule_;
}

void Scheduler::schedule_prefill() {
  int32_t decode_rows = 0;
  for (const ScheduledRows& piece : schedule_.rows) decode_rows += piece.rows;
  if (turns_.empty()) {
    passes_without_prefill_ = kDecodePassesMax;
    if (!waiting_.empty()) begin_shares();
    return;
  }
  double budget_ms = prefill_budget_ms(decode_rows);
  if (budget_ms < 0.0) {
    ++passes_without_prefill_;
    return;
  }
  passes_without_prefill_ = 0;
  int32_t rows_left = limits_.rows_max - decode_rows;
  if (limits_.chunk_tokens_max > 0)
    rows_left = std::min(rows_left, whole_blocks_up(limits_.chunk_tokens_max));
  begin_shares();
  for (bool first = true;; first = false) {
    const size_t picked = shares_.pick(turns_);
    if (picked == turns_.size()) return;
    PrefillTurn& turn = turns_[picked];
    int32_t rows = piece_rows(turn, budget_ms, rows_left);
    // At least one page of prefill is scheduled, however expensive, or a deep prompt would starve.
    if (rows == 0 && first) rows = std::min({kPageTokens, turn.tokens_left, rows_left});
    if (rows == 0) return;
    const double spent_ms = cost_.piece_ms(turn.depth, rows);
    schedule_.rows.push_back({turn.sequence, rows, Arithmetic::prompt});
    shares_.charge(turn, spent_ms);
    budget_ms -= spent_ms;
    rows_left -= rows;
    turn.tokens_left = 0;  // one chunk of a prompt in a pass
  }
}

void Scheduler::begin_shares() {
  waiting_.insert(waiting_.end(), turns_.begin(), turns_.end());
  shares_.begin(waiting_);
}

int32_t Scheduler::piece_rows(const PrefillTurn& turn, double budget_ms, int32_t rows_left) const {
  const int32_t rows =
      std::min({rows_left, turn.rows_max, cost_.rows_within(turn.depth, budget_ms)});
  if (turn.tokens_left <= rows || planted(kBugCutsAnywhere))
    return std::min(turn.tokens_left, rows);
  return rows / kPageTokens * kPageTokens;
}

/// Milliseconds for prompt rows in this pass; negative: none, the pass is for decoding alone.
double Scheduler::prefill_budget_ms(int32_t decode_rows) const {
  const double decode_ms = cost_.ms({.decode_rows = decode_rows});
  const double fixed_ms = cost_.parameters().prefill;
  const double share = encoder_ == Encoder::works ? 1.0 - kEncoderShare : 1.0;
  if (decode_rows == 0)
    return share * std::max(limits_.prefill_step_ms - decode_ms - fixed_ms, 0.0);
  const double room_ms = share * (limits_.step_ms - decode_ms - fixed_ms);
  const double work_ms = std::max(fixed_ms, cheapest_piece_ms());
  if (room_ms >= work_ms) return room_ms;
  // Less than half of what prefill adds to a pass would be work. Rather a longer pass now and then,
  // with passes of decoding between, so many that the mean pass keeps to step_ms.
  const double over_ms = decode_ms + fixed_ms + work_ms - limits_.step_ms;
  const double spare_ms = limits_.step_ms - decode_ms;
  const double between = over_ms <= 0.0    ? 0.0
                         : spare_ms <= 0.0 ? kDecodePassesMax
                                           : std::ceil(over_ms / spare_ms);
  return passes_without_prefill_ < std::min<double>(between, kDecodePassesMax) ? -1.0 : work_ms;
}

double Scheduler::encoder_ms(const PassShape& pass, int32_t decoding) const {
  const bool empty = pass.decode_rows == 0 && pass.prefill_tokens == 0;
  const double limit_ms = decoding > 0 ? limits_.step_ms : limits_.prefill_step_ms;
  return std::max(limit_ms - (empty ? 0.0 : cost_.ms(pass)), limit_ms * kEncoderLeast);
}

double Scheduler::cheapest_piece_ms() const {
  double least = 1e12;
  for (const PrefillTurn& turn : turns_)
    least = std::min(least, cost_.piece_ms(turn.depth, std::min(kPageTokens, turn.tokens_left)));
  return least;
}

PassShape Scheduler::shape(const Schedule& schedule, std::span<const SequenceView> sequences) {
  PassShape shape;
  for (const ScheduledRows& piece : schedule.rows) {
    if (piece.arithmetic == Arithmetic::generation)
      ++shape.decode_rows, shape.drafted_rows += piece.rows - 1;
    else
      shape.add_piece(sequences[static_cast<size_t>(piece.sequence)].cached, piece.rows);
  }
  return shape;
}

double Scheduler::first_token_ms(std::span<const SequenceView> sequences, int32_t prompt_size,
                                 double mean_output_tokens) const {
  int32_t decode_rows = 0;
  double ahead_ms = 0.0;
  for (const SequenceView& s : sequences) {
    if (s.cached < s.prompt_size)
      ahead_ms += cost_.piece_ms(s.cached, s.prompt_size - s.cached);
    else if (s.phase == Phase::decode)
      ++decode_rows;
  }
  // The part of a pass that is prefill.
  const double decode_ms = cost_.ms({.decode_rows = decode_rows});
  const double fixed_ms = decode_ms + cost_.parameters().prefill;
  const double pass_ms = decode_rows > 0 ? limits_.step_ms : limits_.prefill_step_ms;
  const double part = std::clamp(1.0 - fixed_ms / pass_ms, 0.1, 1.0);
  // Seats come free as answers end, meanwhile the prompts ahead are computed.
  const auto live = static_cast<double>(sequences.size());
  const double ends = std::max(live + 1.0 - limits_.sequences_max, 0.0);
  const double token_ms = ahead_ms > 0.0 ? limits_.step_ms : decode_ms;
  const double seat_ms = ends * mean_output_tokens * token_ms / limits_.sequences_max;
  return fixed_ms + std::max(ahead_ms / part, seat_ms) + cost_.piece_ms(0, prompt_size) / part;
}

}  // namespace nibble
