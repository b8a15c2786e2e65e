// The constants and the reasons for them.
#include "plan/card_defaults.h"

#include <algorithm>

#include "plan/memory_plan.h"

namespace nibble {
namespace {

/// One prompt of 8,192 tokens in one pass is what its first token waits for; smaller passes read
/// the weights again for each piece.
constexpr int32_t kRowsMost = 8192;
constexpr int32_t kRowsLeast = 512;
/// Larger passes may take this part of the room from the caches.
constexpr int64_t kWorkspaceDivisor = 16;
/// The largest recorded pass of generated tokens. More rows are computed 64 at a time, so more
/// sequences would slow each other down without more tokens in all.
constexpr int64_t kSequencesMost = 64;
/// A sequence is expected to be so long.
constexpr int64_t kSequenceTokens = 8192;

}  // namespace

CardBudget card_budget(const CardFacts& facts) {
  CardBudget budget;
  budget.asked_bytes = static_cast<int64_t>(static_cast<double>(facts.card_bytes) * facts.share);
  budget.context_bytes = std::min(facts.context_bytes, facts.taken_bytes);
  budget.others_bytes = facts.taken_bytes - budget.context_bytes;
  budget.memory_bytes = std::min(budget.asked_bytes, facts.card_bytes - budget.others_bytes);
  return budget;
}

ServingDefaults serving_defaults(const ModelConfig& config, const CardRoom& room) {
  const auto workspace = [&](int32_t rows) { return pass_bytes(config, rows, kSequencesMost); };
  ServingDefaults defaults{.sequences_max = kSequencesLeast, .rows_max = kRowsMost};
  while (defaults.rows_max > kRowsLeast &&
         workspace(defaults.rows_max) > room.bytes / kWorkspaceDivisor)
    defaults.rows_max /= 2;
  const int64_t pages = (kSequenceTokens + kPageTokens - 1) / kPageTokens;
  const int64_t each = room.slot_bytes + pages * room.page_bytes;
  const int64_t left = room.bytes - workspace(defaults.rows_max);
  int64_t fit = each == 0 ? kSequencesMost : left / each;
  if (room.slot_bytes > 0) fit = std::min(fit, left / kSequenceShareDivisor / room.slot_bytes);
  defaults.sequences_max =
      static_cast<int32_t>(std::clamp(fit / 4 * 4, kSequencesLeast, kSequencesMost));
  return defaults;
}

}  // namespace nibble
