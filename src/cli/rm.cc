// nibble rm: removes a model or a revision from the Hugging Face cache, after asking.
#include <iostream>

#include "base/json.h"
#include "cli/hub/cached_models.h"
#include "cli/hub/hub_options.h"
#include "cli/options/folders.h"

namespace nibble {
namespace {

constexpr auto kOptions = std::to_array<Option>({
    kRevisionOption,
    {"yes", "", "", "do not ask"},
    {"dry-run", "", "", "say what would be removed, and stop"},
    {"json", "", "", "print one JSON document instead"},
});

std::string what_text(const CachedChoice& choice, const RemovalPlan& plan) {
  std::string text = plan.whole_model ? concat(choice.model.repository, " with all ",
                                               choice.model.revisions.size(), " revisions")
                                      : concat(choice.model.repository, " at ", choice.commit);
  text += concat(": frees ", size_text(plan.freed_bytes), " (", plan.freed_bytes, " bytes)");
  if (plan.kept_bytes > 0)
    text += concat("; ", size_text(plan.kept_bytes), " stay, another revision uses them");
  return text + "\n";
}

/// Errors: invalid_argument where nobody can answer; cancelled for any other answer than yes.
Result<void> ask(const Arguments& arguments, Terminal& terminal) {
  if (arguments.enabled("yes")) return {};
  if (terminal.input_watcher() != Watcher::person)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "nobody can be asked here", .advice = "say --yes to remove it"});
  terminal.err("remove it? [y/N] ");
  std::string answer;
  std::getline(std::cin, answer);
  if (answer == "y" || answer == "Y" || answer == "yes") return {};
  return Error{ErrorCode::cancelled, "nothing was removed"};
}

Json removal_json(const CachedChoice& choice, const RemovalPlan& plan) {
  Json paths{Json::Array{}};
  for (const auto& path : plan.paths) paths.push_back(path.string());
  return json_object({{"repository", choice.model.repository},
                      {"commit", plan.whole_model ? Json() : Json(choice.commit)},
                      {"freed_bytes", plan.freed_bytes},
                      {"kept_bytes", plan.kept_bytes},
                      {"paths", std::move(paths)}});
}

Result<int> run(const Arguments& arguments, Terminal& terminal) {
  const CachedChoice choice = TRY(find_cached(arguments));
  const RemovalPlan plan = plan_removal(hub_cache(), choice.model, choice.commit);
  const bool as_json = arguments.enabled("json");
  const std::string what = what_text(choice, plan);
  if (arguments.enabled("dry-run")) {
    TRY(terminal.out(as_json ? removal_json(choice, plan).dump_pretty() : what));
    return kExitOk;
  }
  terminal.err(what);
  TRY(ask(arguments, terminal));
  TRY(remove_planned(plan));
  if (as_json) TRY(terminal.out(removal_json(choice, plan).dump_pretty()));
  return kExitOk;
}

}  // namespace

const Verb kRmVerb = {.name = "rm",
                      .positionals = "ORG/NAME",
                      .summary = "Removes a model, or with @REV one revision, from the cache",
                      .options = kOptions,
                      .run = run};

}  // namespace nibble
