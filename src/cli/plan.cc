// nibble plan: what of a model fits where, before anything is downloaded, quantized or loaded.
#include <algorithm>

#include "cli/options/flag_errors.h"
#include "cli/plan/plan_effects.h"
#include "cli/plan/plan_foreign.h"
#include "cli/serving/vllm_flags.h"

namespace nibble {
namespace {

constexpr Option kContextsOption = {"contexts", "LIST", "4096,32768,131072,262144",
                                    "lengths of requests, whose number at once is asked"};
constexpr auto kOwnOptions = std::to_array<Option>({
    {"model", "DIR", "", "the model, where it does not stand first", "", OptionForm::operand},
    kPlanRecipeOption,
    kGpuOption,
    kContextsOption,
    {"json", "", "", "print one JSON document instead"},
    kMaxSequencesOption,
});
constexpr auto kOptions =
    joined_options(kOwnOptions, kEngineOptions, kServingOptions, kModelOptions);

Result<std::vector<int64_t>> read_contexts(const Arguments& arguments) {
  std::vector<int64_t> contexts;
  const std::string text = *arguments.text(kContextsOption.name);
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const auto tokens = read_size(std::string_view(text).substr(at, end - at));
    if (!tokens || *tokens < 2 || *tokens > INT32_MAX)
      return make_error(ErrorCode::invalid_argument,
                        {.what = "--contexts",
                         .expected = concat("whole numbers from 2 to ", INT32_MAX,
                                            " with commas, such as 4096,32K"),
                         .found = concat("\"", text, "\"")});
    contexts.push_back(*tokens);
    at = end + 1;
  }
  return contexts;
}

/// Integers are a way of the CPU alone.
Result<void> check_activations(const Arguments& arguments, const Place& place) {
  if (*arguments.text(kActivationsOption.name) != "int8" || place.kind == Place::Kind::host)
    return {};
  return make_error(ErrorCode::invalid_argument,
                    {.what = "--activations int8",
                     .expected = "--gpu cpu",
                     .found = place.card ? place.card->name : "a plan for cards",
                     .advice = "auto is bf16 on a card"});
}

Result<void> check(const Arguments& arguments) {
  FlagErrors errors;
  errors.add(check_vllm_flags(arguments));
  errors.add(check_engine_flags(servable(arguments), kServingNeeds));
  errors.add(read_sequences(arguments));
  errors.add(read_contexts(arguments));
  const Result<Place> place = read_place(arguments);
  errors.add(place);
  if (place.ok()) errors.add(check_activations(arguments, place.value()));
  return errors.result();
}

PlanReport report_of(const PlanModel& model) {
  PlanReport report;
  report.model = model.name;
  report.made_of = model.made_of;
  report.others = model.others;
  report.written_bytes = model.written_bytes;
  return report;
}

/// The name of the KV format; auto depends on the place.
KvChoice kv_choice(const Arguments& arguments, const Place& place) {
  KvChoice choice = read_kv(arguments).choice;
  const bool wide = *arguments.text(kActivationsOption.name) == "f32";
  if (choice.name.empty()) choice.name = wide || place.kind == Place::Kind::host ? "F32" : "BF16";
  return choice;
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

Result<int> print(const Arguments& arguments, Terminal& terminal, const std::string& text,
                  const Json& json) {
  TRY(terminal.out(arguments.enabled("json") ? json.dump_pretty() : text));
  return kExitOk;
}

Result<int> plan_one(const Arguments& arguments, const PlanModel& model, const Place& place,
                     Terminal& terminal) {
  const auto made = plan_run(arguments, model, place.card);
  if (!made.ok() && made.error().code == ErrorCode::no_memory)
    terminal.err(what_fits(arguments, model, place));
  const PlannedRun run = TRY(made);
  PlanReport report = report_of(model);
  report.weights = place.card ? model.on_card : model.on_cpu;
  if (!place.card && model.config_on_cpu.draft_layers > 0) report.others.mtp_bytes = 0;  // loaded
  report.unread_bytes = model.unread_bytes;
  report.card = place.card;
  report.context_bytes = run.context_bytes;
  report.recorded_bytes = run.recorded_bytes;
  report.kv = kv_choice(arguments, place);
  report.request = run.request;
  report.plan = run.plan;
  report.longest_context = longest_context(arguments, model, place, run);
  for (const int64_t tokens : TRY(read_contexts(arguments)))
    if (tokens < run.plan.context_max) report.contexts.push_back(tokens);
  report.contexts.push_back(run.plan.context_max);
  report.effects = effects_of(arguments, model, place, run);
  report.speeds = speeds_of(model, place, run);
  return print(arguments, terminal, plan_text(report), plan_json(report));
}

Result<int> plan_cards(const Arguments& arguments, const PlanModel& model, const Place& place,
                       Terminal& terminal) {
  PlanReport report = report_of(model);
  report.weights = model.on_card;
  report.kv = kv_choice(arguments, place);
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
  return print(arguments, terminal, fits_text(report, fits), fits_json(report, fits));
}

Result<int> run(const Arguments& arguments, Terminal& terminal) {
  for (const std::string& notice : vllm_flag_notices(arguments)) terminal.err(notice + "\n");
  const Place place = TRY(read_place(arguments));
  const PlanModel model = TRY(read_plan_model(servable(arguments), terminal));
  return place.kind == Place::Kind::all_cards ? plan_cards(arguments, model, place, terminal)
                                              : plan_one(arguments, model, place, terminal);
}

}  // namespace

const Verb kPlanVerb = {.name = "plan",
                        .positionals = "MODEL",
                        .summary =
                            "Shows what of a model fits on which card, and how fast it can "
                            "be at most",
                        .options = kOptions,
                        .run = run,
                        .foreign = plan_foreign_flags(kOptions),
                        .check = check};

}  // namespace nibble
