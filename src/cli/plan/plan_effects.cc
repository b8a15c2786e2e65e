// The same plan again with one word changed.
#include "cli/plan/plan_effects.h"

#include <algorithm>

#include "model/kv_codec.h"
#include "plan/plan_text.h"

namespace nibble {
namespace {

/// One changed flag.
struct Change {
  std::string_view option;
  std::string value;
  std::string shown;
};

/// The share that --gpu-memory-utilization 0.95 asks for.
int64_t large_share(const PlannedCard& card) {
  return static_cast<int64_t>(static_cast<double>(card.memory_bytes) * 0.95);
}

/// Flags that would leave more for pages, as far as they are not given yet.
std::vector<Change> changes_of(const Arguments& arguments, const PlanModel& model,
                               const Place& place, const PlannedRun& run) {
  std::vector<Change> changes;
  const auto add = [&](const Option& option, const std::string& value) {
    changes.push_back({option.name, value, concat("--", option.name, " ", value)});
  };
  const std::string kv = *arguments.text(kKvCacheOption.name);
  const bool four_bits = kv.starts_with("turboquant") || kv == "nvfp4";
  if (!four_bits && !kv.starts_with("fp8")) add(kKvCacheOption, "fp8");
  if (!four_bits && check_kv_head_dim(KvFormat::turboquant_4bit_nc, model.config).ok())
    add(kKvCacheOption, "turboquant_4bit_nc");
  if (run.request.slot_bytes > 0 && !arguments.text(kStateOption.name)->starts_with("b"))
    add(kStateOption, "bf16");
  constexpr int32_t kSome = 4;
  const int32_t fewer = run.plan.sequences_max / 2;
  if (fewer >= std::max(kSome, run.request.full_length_sequences))
    add(kMaxSequencesOption, concat(fewer));
  const int32_t rows = run.request.rows_max / 2;
  constexpr int32_t kRowsLeast = 256;
  if (rows >= std::max(kRowsLeast, run.plan.sequences_max + kPageTokens))
    add(kMaxBatchedTokensOption, concat(rows));
  if (arguments.enabled(kPrefixCachingOption.name) && run.plan.snapshots > 0)
    changes.push_back({kPrefixCachingOption.name, "false", "--no-enable-prefix-caching"});
  if (run.plan.media_bytes > 0) changes.push_back({kNoVisionOption.name, "true", "--no-vision"});
  if (place.card && run.request.asked_bytes < large_share(*place.card))
    add(kMemoryShareOption, "0.95");
  return changes;
}

/// This is what the parts beside pages take less; of smaller pages, what the same tokens take less.
int64_t freed_bytes(const PlannedRun& before, const PlannedRun& after) {
  const auto beside = [](const MemoryPlan& plan) { return plan.total_bytes() - plan.kv_bytes; };
  const int64_t same = after.request.page_bytes * before.plan.pools.pages;
  const int64_t pages = before.plan.kv_bytes - same;
  return pages + beside(before.plan) - beside(after.plan) + after.plan.memory_bytes -
         before.plan.memory_bytes;
}

}  // namespace

std::vector<FlagEffect> effects_of(const Arguments& arguments, const PlanModel& model,
                                   const Place& place, const PlannedRun& run) {
  std::vector<FlagEffect> effects;
  for (const Change& change : changes_of(arguments, model, place, run)) {
    const Arguments changed = arguments.with(change.option, change.value);
    FlagEffect effect{.flag = change.shown};
    const auto other = plan_run(changed, model, place.card);
    if (other.ok()) {
      const MemoryPlan& plan = other.value().plan;
      effect.freed_bytes = freed_bytes(run, other.value());
      effect.kv_tokens = int64_t{plan.pools.pages} * kPageTokens;
      effect.context = plan.context_max;
      effect.sequences = plan.sequences_max;
    } else {
      effect.trouble = other.error().message;
    }
    if (effect.freed_bytes > 0 || !effect.trouble.empty()) effects.push_back(std::move(effect));
  }
  return effects;
}

/// The longest request where --max-model-len does not bound it.
int32_t longest_context(const Arguments& arguments, const PlanModel& model, const Place& place,
                        const PlannedRun& run) {
  const auto free = plan_run(arguments.with(kMaxModelLenOption.name, "auto"), model, place.card);
  return free.ok() ? std::max(free.value().plan.context_max, run.plan.context_max)
                   : run.plan.context_max;
}

/// The largest of the smaller presets that fits with the same flags, in words; empty: none does.
std::string what_fits(const Arguments& arguments, const PlanModel& model, const Place& place) {
  const auto recipe =
      load_recipe(arguments.text(kPlanRecipeOption.name).value_or(std::string(kDefaultRecipe)));
  if (!recipe.ok()) return {};
  std::string text;
  int64_t best = 0;
  for (const BuiltinPreset& preset : builtin_presets()) {
    const auto smaller = preset_model(preset, recipe.value());
    if (!smaller.ok()) continue;
    const int64_t bytes = total_bytes(smaller.value().served.on_card);
    if (bytes >= total_bytes(model.served.on_card) || bytes <= best) continue;
    const auto run = plan_run(arguments, smaller.value(), place.card);
    if (!run.ok()) continue;
    best = bytes;
    text = concat("what fits: ", preset.name, " in recipe ", recipe.value().name, ", ",
                  plan_megabytes(bytes), " of weights, requests of up to ",
                  run.value().plan.context_max, " tokens\n");
  }
  return text.empty() ? "none of the known models fits there\n" : text;
}

}  // namespace nibble
