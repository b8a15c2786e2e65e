// nibble plan: what of a model fits where, before anything is downloaded, quantized or loaded.
#include <algorithm>

#include "cli/hub/fetched_model.h"
#include "cli/hub/hub_options.h"
#include "cli/options/flag_errors.h"
#include "cli/options/image_options.h"
#include "cli/plan/plan_foreign.h"
#include "cli/plan/plan_making.h"
#include "cli/plan/plan_shares.h"
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
    kFetchOption,
    kEndpointOption,
    kTokenOption,
    {"json", "", "", "print one JSON document instead"},
    kMaxSequencesOption,
    kMediaLimitOption,
});
constexpr auto kOptions =
    joined_options(kOwnOptions, kEngineOptions, kServingOptions, kTowerOptions, kModelOptions);

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

/// Several models share one card; a CPU's memory belongs to other programs too.
Result<void> check_several(const Arguments& arguments, const Place& place) {
  if (arguments.positional_count() < 2 || place.kind == Place::Kind::card) return {};
  return make_error(ErrorCode::invalid_argument,
                    {.what = concat(arguments.positional_count(), " models together"),
                     .expected = "--gpu with one card, which they share",
                     .found = place.kind == Place::Kind::host ? "the CPU" : "no --gpu"});
}

Result<void> check(const Arguments& arguments) {
  FlagErrors errors;
  errors.add(check_vllm_flags(arguments));
  errors.add(check_engine_flags(arguments, kServingNeeds));
  errors.add(read_sequences(arguments));
  errors.add(read_contexts(arguments));
  const Result<Place> place = read_place(arguments);
  errors.add(place);
  if (place.ok()) errors.add(check_activations(arguments, place.value()));
  if (place.ok()) errors.add(check_several(arguments, place.value()));
  return errors.result();
}

Result<int> print(const Arguments& arguments, Terminal& terminal, const std::string& text,
                  const Json& json) {
  TRY(terminal.out(arguments.enabled("json") ? json.dump_pretty() : text));
  return kExitOk;
}

Result<int> plan_one(const Arguments& arguments, const PlanModel& model, const Place& place,
                     Terminal& terminal) {
  const auto run = plan_run(arguments, model, place.card);
  if (!run.ok() && run.error().code == ErrorCode::no_memory)
    terminal.err(what_fits(arguments, model, place));
  const PlanReport report =
      whole_report(arguments, model, place, TRY(run), TRY(read_contexts(arguments)));
  return print(arguments, terminal, plan_text(report), plan_json(report));
}

Result<int> plan_cards(const Arguments& arguments, const PlanModel& model, const Place& place,
                       Terminal& terminal) {
  const PlanReport report = report_of(arguments, model, place);
  const std::vector<CardFit> fits = TRY(card_fits(arguments, model));
  return print(arguments, terminal, fits_text(report, fits), fits_json(report, fits));
}

/// Several models on one card, each in a server of its own.
Result<int> plan_together(const Arguments& arguments, const std::vector<PlanModel>& models,
                          const Place& place, Terminal& terminal) {
  const std::vector<int64_t> contexts = TRY(read_contexts(arguments));
  std::vector<SharedPlan> plans;
  for (const CardShare& share : TRY(divide_card(arguments, models, *place.card)))
    plans.push_back(
        {.share = share.share,
         .report = whole_report(share.arguments, *share.model, place, share.run, contexts)});
  return print(arguments, terminal, shared_text(plans), shared_json(plans));
}

Result<int> run(const Arguments& arguments, Terminal& terminal) {
  for (const std::string& notice : vllm_flag_notices(arguments)) terminal.err(notice + "\n");
  const Place place = TRY(read_place(arguments));
  ModelFetcher fetch;
  if (arguments.enabled(kFetchOption.name))
    fetch = [&](const std::string& word) { return fetch_model(arguments, word, terminal); };
  std::vector<PlanModel> models;
  for (int i = 0; i < arguments.positional_count(); ++i)
    models.push_back(TRY(read_plan_model(arguments, arguments.positional(i), fetch, terminal)));
  if (models.size() > 1) return plan_together(arguments, models, place, terminal);
  return place.kind == Place::Kind::all_cards
             ? plan_cards(arguments, models.front(), place, terminal)
             : plan_one(arguments, models.front(), place, terminal);
}

}  // namespace

const Verb kPlanVerb = {.name = "plan",
                        .positionals = "MODEL...",
                        .summary =
                            "Shows what of a model fits on which card, and how fast it can "
                            "be at most",
                        .options = kOptions,
                        .run = run,
                        .foreign = plan_foreign_flags(kOptions),
                        .check = check};

}  // namespace nibble
