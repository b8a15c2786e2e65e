// Scheduler: who runs in the next pass, and by how many rows. Decides from what it is shown: no
// device, no clock, no tokens. Deterministic; its only memory is what it owes and what it learned
// of the cost of a pass.
// Policy: every decoding sequence advances by one row, and by drafted ones that are likely to pay;
// prompts fill the rest of a time budget in milliseconds, from a cost model fitted to measured
// passes. See docs/scheduling.md.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/schedule/admission.h"
#include "engine/schedule/cost_model.h"
#include "engine/schedule/draft_costs.h"
#include "engine/schedule/fair_share.h"
#include "engine/schedule/scheduling.h"

namespace nibble {

class Scheduler {
 public:
  Scheduler(const SchedulerLimits& limits, const CostModel& cost);

  /// `sequences` in order of arrival; the reference is valid until the next call.
  const Schedule& next(std::span<const SequenceView> sequences, const FreeResources& free,
                       double now_ms);
  /// The media encoder has work, or none: then a part of what prompts may take of a pass is its
  /// own.
  enum class Encoder : uint8_t { rests, works };
  void beside(Encoder encoder) { encoder_ = encoder; }
  /// Milliseconds for the encoder after a pass (or none) of this shape, while so many sequences
  /// decode: those that sat this pass out wait for their next token too.
  double encoder_ms(const PassShape& pass, int32_t decoding) const;
  /// The encoder worked so long for a prompt of this tenant.
  void charge_encoder(uint64_t tenant, double ms) { shares_.charge(tenant, ms); }
  /// A pass took this long.
  void observe(const PassShape& shape, double ms);
  /// The rows of a schedule as the cost model counts them.
  static PassShape shape(const Schedule& schedule, std::span<const SequenceView> sequences);
  /// Milliseconds until a prompt of `prompt_size` tokens submitted now would see its first token,
  /// if answers go on being so long and pages are free when its turn comes.
  double first_token_ms(std::span<const SequenceView> sequences, int32_t prompt_size,
                        double mean_output_tokens) const;

  struct DraftsWorth {
    int32_t count = 0;     // tokens whose drafts pay
    double gain_ms = 0.0;  // time that they save, less what they cost
  };
  /// The use of at most `most` drafts in a pass of `decoding` sequences, if each is right with
  /// these odds after a right one. Those of the model cost more than their rows; there are none
  /// until it is known what a pass takes without drafts, and one until their own cost is.
  DraftsWorth drafts_worth(Proposer by, int32_t most, double odds, int32_t decoding) const;
  /// Milliseconds that step `step` (from 1) of a round of drafts of the model saves, less what it
  /// costs, if it is taken for sequences of these odds, of `decoding` that generate.
  double step_gain_ms(std::span<const double> odds, int32_t step, int32_t decoding) const;
  /// The cost of one draft of the model and its row, in tokens that could be made in that time;
  /// infinite until it is known what a pass takes without drafts.
  double draft_cost_tokens(int32_t decoding) const;
  /// A round of `steps` drafts of the model for `decoding` sequences took `ms`.
  void observe_drafts(int32_t decoding, int32_t steps, double ms);
  /// Counts drafted rows of this tenant that were of no use in the last pass: their time is time
  /// that the others are owed.
  void charge_rejected(uint64_t tenant, Proposer by, int32_t rows);

  int32_t decoding() const { return decoding_; }  // sequences that generated in the last pass
  const CostModel& cost() const { return cost_; }
  const SchedulerLimits& limits() const { return limits_; }

 private:
  static constexpr int32_t kPlainPassesMost = 16;
  /// Milliseconds that a token costs without drafts.
  double token_ms(int32_t decode_rows) const;
  void grant_drafts(std::span<const SequenceView> sequences);
  void schedule_prefill();
  void begin_shares();
  double prefill_budget_ms(int32_t decode_rows) const;
  double cheapest_piece_ms() const;
  int32_t piece_rows(const PrefillTurn& turn, double budget_ms, int32_t rows_left) const;

  SchedulerLimits limits_;
  CostModel cost_;
  DraftCosts draft_costs_;
  Admission admission_;
  FairShare shares_;
  Encoder encoder_ = Encoder::rests;
  int32_t passes_without_prefill_ = 0;
  int32_t decoding_ = 0;
  int32_t plain_passes_left_ = kPlainPassesMost;  // until it is held for known what one takes
  Schedule schedule_;
  std::vector<PrefillTurn> turns_;
  std::vector<PrefillTurn> waiting_;  // for the encoder: they keep their tenants' accounts
};

}  // namespace nibble
