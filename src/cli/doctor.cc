// nibble doctor: is this machine ready, what runs on it, how fast can it be, and what to do.
#include "base/file.h"
#include "cli/card/take_receipt.h"
#include "cli/plan/machine_facts.h"
#include "cli/plan/plan_machine.h"

namespace nibble {
namespace {

constexpr auto kOwnOptions = std::to_array<Option>({
    {"port", "N", "8000", "the port that `nibble serve` will listen on"},
    {"json", "", "", "print one JSON document instead"},
    {"receipt", "", "",
     "checks every kernel on the card, measures it, and writes FILE (nibble-receipt.json) for a "
     "report"},
    {"seconds", "N", "60", "with --receipt, of measuring; 0 leaves that out"},
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

/// The exit code says whether the card is sound.
Result<int> write_receipt(const Arguments& arguments, Terminal& terminal) {
  const std::string file =
      arguments.positional_count() > 0 ? arguments.positional(0) : "nibble-receipt.json";
  const double seconds = TRY(arguments.number("seconds", 0, 3600));
  const Receipt receipt = TRY(take_receipt(seconds, terminal));
  remember_receipt(receipt, terminal);
  const std::string document = receipt_json(receipt).dump_pretty();
  TRY(write_file_atomically(file, document));
  TRY(terminal.out(arguments.enabled("json") ? document : receipt_text(receipt)));
  terminal.err(concat("written to ", file, "\n"));
  return is_sound(receipt) ? kExitOk : kExitFailure;
}

Result<int> run(const Arguments& arguments, Terminal& terminal) {
  if (arguments.enabled("receipt")) return write_receipt(arguments, terminal);
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
  TRY(arguments.number("seconds", 0, 3600));
  if (arguments.enabled("receipt")) return {};
  const bool file = arguments.positional_count() > 0;
  if (!file && arguments.source("seconds") != ValueSource::flag) return {};
  return make_error(
      ErrorCode::invalid_argument,
      {.what = "arguments",
       .expected = concat(file ? "a file" : "--seconds", " only with --receipt"),
       .found = file ? arguments.positional(0) : concat("--seconds ", *arguments.text("seconds")),
       .advice = concat("add --receipt to ", file ? "write one" : "measure the card")});
}

}  // namespace

const Verb kDoctorVerb = {.name = "doctor",
                          .positionals = "[FILE]",
                          .summary =
                              "Says whether this machine is ready, what runs on it, and "
                              "what to do",
                          .options = kOwnOptions,
                          .run = run,
                          .check = check};

}  // namespace nibble
