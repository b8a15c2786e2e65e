// This is what `nibble plan` says: a memory plan with its parts, what other flags would change, and
// the bound of speed, as text and as JSON. The numbers are made elsewhere; here they become words.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "plan/card_table.h"
#include "plan/memory_plan.h"
#include "plan/speed/expected_speed.h"
#include "plan/speed/speed_bound.h"
#include "plan/weight_tally.h"

namespace nibble {

/// This is what one changed flag makes of the plan.
struct FlagEffect {
  std::string flag;         // "--kv-cache-dtype fp8"
  int64_t freed_bytes = 0;  // for the same work; they become pages
  std::string trouble;      // why there is no plan with it; then the rest means nothing
  int64_t kv_tokens = 0;
  int32_t context = 0;  // longest request
  int32_t sequences = 0;
};

/// The bound for so many streams.
struct SpeedRow {
  StepLoad load;
  StepBytes bytes;
  double tokens_per_second = 0;  // at the card's bandwidth; 0: not known
};

struct PlanReport {
  std::string model;    // "qwen3.6-35b-a3b"
  std::string made_of;  // "shapes of config.json, recipe mixed"
  std::vector<WeightRow> weights;
  int64_t unread_bytes = 0;  // tensors of the file that no part of the text model reads
  OtherWeights others;
  std::string way_to_tower;  // to load a vision tower that is not loaded, or why there is none
  std::optional<int64_t> written_bytes;  // of the checkpoint that quantize would write
  std::optional<PlannedCard> card;       // absent: this machine's own memory
  int64_t context_bytes = 0;             // of the driver
  int64_t recorded_bytes = 0;            // of recorded passes
  std::string kv_format;                 // "BF16"
  MemoryRequest request;
  MemoryPlan plan;
  int32_t longest_context = 0;    // with --max-model-len auto
  std::vector<int64_t> contexts;  // whose concurrency is asked
  std::vector<FlagEffect> effects;
  std::vector<SpeedRow> speeds;
  std::vector<ExpectedRow> expected;  // of a card with products of 4-bit codes
  std::string speculation;  // a line: what is drafted by default or by a flag, or why nothing is
};

std::string plan_text(const PlanReport& report);
Json plan_json(const PlanReport& report);

/// One card of the table with the same model and flags.
struct CardFit {
  PlannedCard card;
  std::optional<MemoryPlan> plan;         // absent: it does not fit
  std::string trouble;                    // why
  std::vector<double> tokens_per_second;  // for fit_streams()
};
/// The numbers of streams whose bound a CardFit has.
std::vector<int64_t> fit_streams();

/// The table of all cards: `report` says the model; its card and plan are not read.
std::string fits_text(const PlanReport& report, const std::vector<CardFit>& fits);
Json fits_json(const PlanReport& report, const std::vector<CardFit>& fits);

/// One of several models on a card, each in a server of its own.
struct SharedPlan {
  std::string share;  // its --gpu-memory-utilization: "0.412"
  PlanReport report;
};
/// At least one; all on the same card.
std::string shared_text(const std::vector<SharedPlan>& plans);
Json shared_json(const std::vector<SharedPlan>& plans);

}  // namespace nibble
