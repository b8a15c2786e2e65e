// The numbers of a report, put together.
#include "cli/plan/plan_making.h"

#include <algorithm>

#include "backend/cuda/vision/vision_memory.h"
#include "cli/options/image_options.h"

namespace nibble {
namespace {

/// The name of the KV format; auto depends on the place.
std::string kv_format_name(const Arguments& arguments, const Place& place) {
  const std::string word = *arguments.text(kKvCacheOption.name);
  if (word == "auto") {
    const bool wide = *arguments.text(kActivationsOption.name) == "f32";
    return wide || place.kind == Place::Kind::host ? "F32" : "BF16";
  }
  if (word.starts_with("bf")) return "BF16";
  if (word.starts_with("fp8")) return "FP8";
  return word == "nvfp4" ? "NVFP4" : "TurboQuant";
}

std::vector<SpeedRow> speeds_of(const PlanModel& model, const Place& place, const PlannedRun& run) {
  constexpr int64_t kShort = 2048;
  std::vector<SpeedRow> rows;
  const auto add = [&](int64_t streams, int64_t context) {
    rows.push_back(speed_row(model, run.request, place.card, streams, context));
  };
  for (const int64_t streams : {1, 8, 32, 64})
    if (streams <= run.plan.sequences_max)
      add(streams, std::min<int64_t>(kShort, run.plan.context_max));
  constexpr int64_t kLong = 32768;
  if (run.plan.context_max >= kLong) add(1, kLong);
  if (run.plan.context_max > kLong) add(1, run.plan.context_max);
  return rows;
}

/// Numbers of streams that do not fit are left out.
std::vector<ExpectedRow> expected_of(const PlanModel& model, const PlannedCard& card,
                                     const PlannedRun& run) {
  const StepLoad load = {.context = std::min<int64_t>(2048, run.plan.context_max),
                         .page_bytes = run.request.page_bytes,
                         .slot_bytes = run.request.slot_bytes};
  std::vector<ExpectedRow> rows = expected_speeds(model.config, model.in_file, load, card);
  std::erase_if(rows, [&](const ExpectedRow& row) { return row.streams > run.plan.sequences_max; });
  return rows;
}

enum class Tower : uint8_t { left_out, loaded };

Tower tower_there(const Arguments& arguments, const PlanModel& model, const Place& place) {
  return loaded_tower(arguments, model, place.kind) ? Tower::loaded : Tower::left_out;
}

/// The way to load a tower that is left out there, or why there is none.
std::string way_to_tower(const Arguments& arguments, const PlanModel& model, const Place& place) {
  if (!takes_media(arguments).value()) return "--limit-mm-per-prompt leaves no image and no video";
  if (place.kind == Place::Kind::host) return "it is loaded without --no-vision";
  const bool fits = !model.vision || cuda::vision_fits_card(*model.vision);
  return fits ? "--max-image-tokens loads it" : "there is no kernel for its heads on a card";
}

/// An MTP layer that is loaded is counted there.
void take_weights(const ServedModelSizes& sizes, const Place& place, Tower tower,
                  PlanReport& report) {
  report.weights = place.kind == Place::Kind::host ? sizes.on_cpu : sizes.on_card;
  if (tower == Tower::left_out)
    std::erase_if(report.weights,
                  [](const WeightRow& row) { return row.kind == WeightKind::vision; });
  if (sizes.config.draft_layers > 0) report.others.mtp_bytes = 0;
}

}  // namespace

PlanReport report_of(const Arguments& arguments, const PlanModel& model, const Place& place) {
  PlanReport report;
  report.model = model.name;
  report.made_of = model.made_of;
  report.others = model.others;
  report.written_bytes = model.written_bytes;
  const Tower tower = tower_there(arguments, model, place);
  take_weights(model.served, place, tower, report);
  if (tower == Tower::loaded) report.others.vision_bytes = 0;
  report.way_to_tower = way_to_tower(arguments, model, place);
  report.kv_format = kv_format_name(arguments, place);
  return report;
}

PlanReport whole_report(const Arguments& arguments, const PlanModel& model, const Place& place,
                        const PlannedRun& run, const std::vector<int64_t>& contexts) {
  PlanReport report = report_of(arguments, model, place);
  if (run.drafts_by_default)
    take_weights(*model.drafting, place, tower_there(arguments, model, place), report);
  report.speculation = run.speculation;
  report.unread_bytes = model.unread_bytes;
  report.card = place.card;
  report.context_bytes = run.context_bytes;
  report.recorded_bytes = run.recorded_bytes;
  report.request = run.request;
  report.plan = run.plan;
  report.longest_context = longest_context(arguments, model, place, run);
  for (const int64_t tokens : contexts)
    if (tokens < run.plan.context_max) report.contexts.push_back(tokens);
  report.contexts.push_back(run.plan.context_max);
  report.effects = effects_of(arguments, model, place, run);
  report.speeds = speeds_of(model, place, run);
  if (place.card) report.expected = expected_of(model, *place.card, run);
  return report;
}

Result<std::vector<CardFit>> card_fits(const Arguments& arguments, const PlanModel& model) {
  std::vector<CardFit> fits;
  for (const CardRow& row : card_rows()) {
    CardFit fit{.card = TRY(find_card(row.name)), .plan = {}, .trouble = {}};
    const auto run = plan_run(arguments, model, fit.card);
    if (run.ok()) {
      fit.plan = run.value().plan;
      for (const int64_t streams : fit_streams())
        if (streams <= fit.plan->sequences_max)
          fit.tokens_per_second.push_back(
              speed_row(model, run.value().request, fit.card, streams, 2048).tokens_per_second);
    } else if (run.error().code == ErrorCode::no_memory) {
      fit.trouble = run.error().message;
    } else {
      return run.error();
    }
    fits.push_back(std::move(fit));
  }
  return fits;
}

}  // namespace nibble
