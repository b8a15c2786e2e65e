// Shares are whole thousandths, since they become words of a command; each is tried by its plan.
#include "cli/plan/plan_shares.h"

#include <numeric>

#include "plan/plan_text.h"
#include "plan/text_table.h"

namespace nibble {
namespace {

constexpr int32_t kParts = 1000;

std::string share_text(int32_t parts) { return fixed_text(parts / double{kParts}, 3); }

int64_t bytes_of(int32_t parts, const PlannedCard& card) {
  return card.memory_bytes / kParts * parts;
}

Arguments with_share(const Arguments& arguments, int32_t parts) {
  return arguments.with(kMemoryShareOption.name, share_text(parts));
}

/// True if the model's server starts with so much. Errors: those of plan_run but no_memory.
Result<bool> starts(const Arguments& arguments, const PlanModel& model, const PlannedCard& card,
                    int32_t parts) {
  const auto run = plan_run(with_share(arguments, parts), model, card);
  if (run.ok()) return true;
  if (run.error().code == ErrorCode::no_memory) return false;
  return run.error();
}

/// The least parts with which the model starts, beyond the whole card too: then of a larger card of
/// the same kind. Nothing: not even with eight times this one.
Result<std::optional<int32_t>> least_parts(const Arguments& arguments, const PlanModel& model,
                                           const PlannedCard& card) {
  constexpr int32_t kLargest = 8;
  PlannedCard larger = card;
  for (int32_t times = 1; times <= kLargest; times *= 2) {
    larger.memory_bytes = card.memory_bytes * times;
    if (!TRY(starts(arguments, model, larger, kParts))) continue;
    int32_t too_few = 0;
    int32_t enough = kParts;
    while (enough - too_few > 1) {
      const int32_t middle = std::midpoint(too_few, enough);
      (TRY(starts(arguments, model, larger, middle)) ? enough : too_few) = middle;
    }
    return std::optional(enough * times);
  }
  return std::optional<int32_t>();
}

Error do_not_fit(std::span<const PlanModel> models, std::span<const std::optional<int32_t>> least,
                 int32_t parts, const PlannedCard& card) {
  std::string needs;
  for (size_t i = 0; i < models.size(); ++i)
    needs += concat(i == 0 ? "" : ", ", models[i].name, " at least ",
                    least[i] ? plan_megabytes(bytes_of(*least[i], card)) : "8 such cards");
  return make_error(
      ErrorCode::no_memory,
      {.what = concat(models.size(), " models together on ", card.name),
       .expected = concat("at most ", plan_megabytes(bytes_of(parts, card)), " (",
                          share_text(parts), " of ", plan_megabytes(card.memory_bytes), ")"),
       .found = needs,
       .advice = "fewer or smaller models, shorter requests (--max-model-len), fewer sequences "
                 "(--max-num-seqs), or a larger card"});
}

}  // namespace

Result<std::vector<CardShare>> divide_card(const Arguments& arguments,
                                           std::span<const PlanModel> models,
                                           const PlannedCard& card) {
  const auto parts = static_cast<int32_t>(TRY(read_memory_share(arguments)) * kParts + 0.5);
  std::vector<std::optional<int32_t>> least;
  int64_t sum = 0;
  for (const PlanModel& model : models) {
    least.push_back(TRY(least_parts(arguments, model, card)));
    sum += least.back().value_or(parts + 1);
  }
  if (sum > parts) return do_not_fit(models, least, parts, card);
  const auto rest = static_cast<int32_t>(parts - sum);
  const auto count = static_cast<int32_t>(models.size());
  std::vector<CardShare> shares;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t mine = *least[static_cast<size_t>(i)] + rest / count + (i < rest % count ? 1 : 0);
    CardShare share{.model = &models[static_cast<size_t>(i)],
                    .share = share_text(mine),
                    .arguments = with_share(arguments, mine)};
    share.run = TRY(plan_run(share.arguments, *share.model, card));
    shares.push_back(std::move(share));
  }
  return shares;
}

}  // namespace nibble
