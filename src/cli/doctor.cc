// nibble doctor: is this machine ready, what runs on it, how fast can it be, and what to do.
#include "cli/plan/machine_facts.h"
#include "cli/plan/plan_machine.h"

namespace nibble {
namespace {

constexpr auto kOwnOptions = std::to_array<Option>({
    {"port", "N", "8000", "the port that `nibble serve` will listen on"},
    {"json", "", "", "print one JSON document instead"},
});

/// The models whose plans are told of, the largest first.
constexpr std::string_view kModels[] = {"qwen3.6-35b-a3b", "qwen3.6-27b", "qwen3.5-9b",
                                        "qwen3.5-4b"};

/// The flags of `nibble serve` with their defaults.
Result<Arguments> default_flags() {
  const std::vector<std::string> words = {"model"};
  return parse_arguments(kPlanVerb, words,
                         [](const std::string&) { return std::optional<std::string>(); });
}

Result<Expectation> expect(const Arguments& flags, const Recipe& recipe, std::string_view name,
                           const PlannedCard& card) {
  const PlanModel model = TRY(preset_model(*find_preset(name), recipe));
  Expectation expectation{.model = std::string(name), .recipe = recipe.name};
  const auto run = plan_run(flags, model, card);
  const bool drafts = run.ok() && run.value().drafts_by_default;
  expectation.weight_bytes = total_bytes((drafts ? *model.drafting : model.served).on_card);
  if (!run.ok() && run.error().code != ErrorCode::no_memory) return run.error();
  if (!run.ok()) return expectation;
  constexpr int64_t kContext = 2048;
  expectation.longest_request = run.value().plan.context_max;
  expectation.tokens_per_second =
      speed_row(model, run.value().request, card, 1, kContext).tokens_per_second;
  return expectation;
}

/// Plans of known models on the first card, if it can be used.
Result<std::vector<Expectation>> expectations(const MachineFacts& facts) {
  std::vector<Expectation> all;
  constexpr int32_t kOldest = 80;
  if (facts.gpus.empty() || facts.gpus.front().capability < kOldest) return all;
  const PlannedCard card = card_of_device(facts.gpus.front());
  const Arguments flags = TRY(default_flags());
  const Recipe recipe = TRY(load_recipe(kDefaultRecipe));
  for (const std::string_view name : kModels) all.push_back(TRY(expect(flags, recipe, name, card)));
  return all;
}

Result<int> run(const Arguments& arguments, Terminal& terminal) {
  MachineFacts facts =
      machine_facts(static_cast<int32_t>(TRY(arguments.integer("port", 1, 65535))));
  facts.expectations = TRY(expectations(facts));
  const std::vector<HealthLine> lines = machine_report(facts);
  TRY(terminal.out(arguments.enabled("json") ? machine_json(lines).dump_pretty()
                                             : machine_text(lines)));
  return all_fine(lines) ? kExitOk : kExitFailure;
}

Result<void> check(const Arguments& arguments) {
  TRY(arguments.integer("port", 1, 65535));
  return {};
}

}  // namespace

const Verb kDoctorVerb = {.name = "doctor",
                          .positionals = "",
                          .summary =
                              "Says whether this machine is ready, what runs on it, and "
                              "what to do",
                          .options = kOwnOptions,
                          .run = run,
                          .check = check};

}  // namespace nibble
