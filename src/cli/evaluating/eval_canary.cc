// Greedy answers of both models, compared as decisions. Of two folders also the divergence at the
// tokens that carry structure, where the second is given what the first has answered.
#include "cli/evaluating/eval_canary.h"

#include "cli/evaluating/answered.h"
#include "cli/evaluating/asked_model.h"
#include "cli/options/folders.h"
#include "cli/serving/client_setup.h"
#include "eval/canary.h"
#include "eval/score.h"
#include "eval/task_check.h"
#include "plan/text_table.h"

namespace nibble {
namespace {

/// A decision that is not the one it was to be.
struct Change {
  const TaskItem* item = nullptr;
  std::string expected;  // A's, or the right one
  std::string found;     // B's, or A's
};

struct CanaryReport {
  std::vector<std::string> names;  // the names of one model, or of two
  size_t decisions = 0;
  std::vector<Change> changes;
  std::optional<DivergenceSummary> structure;
};

Result<std::vector<Change>> wrong_decisions(const std::vector<TaskItem>& items,
                                            const std::vector<Answered>& answers) {
  std::vector<Change> changes;
  for (size_t i = 0; i < items.size(); ++i) {
    const Judgement judgement = TRY(judge(items[i], answers[i].answer));
    if (judgement.verdict == Verdict::wrong)
      changes.push_back({&items[i], judgement.why, decision_of(items[i], answers[i].answer)});
  }
  return changes;
}

std::vector<Change> changed_decisions(const std::vector<TaskItem>& items,
                                      const std::vector<Answered>& first,
                                      const std::vector<Answered>& second) {
  std::vector<Change> changes;
  for (size_t i = 0; i < items.size(); ++i) {
    Change change{&items[i], decision_of(items[i], first[i].answer),
                  decision_of(items[i], second[i].answer)};
    if (change.expected != change.found) changes.push_back(std::move(change));
  }
  return changes;
}

/// Scores A's answers with both models, and compares them where the next token carries structure.
Result<DivergenceSummary> structural_divergence(const Arguments& arguments,
                                                const std::vector<Answered>& answers,
                                                Terminal& terminal) {
  ModelRequest first = TRY(model_request(arguments, ""));
  first.folder = TRY(checkpoint_folder(arguments.positional(1), terminal));
  ModelRequest second = first;
  second.folder = TRY(checkpoint_folder(arguments.positional(2), terminal));
  const Tokenizer tokenizer = TRY(Tokenizer::load(first.folder));
  ScoreRequest request;
  for (const Answered& answered : answers) {
    request.sequences.push_back(answered.prompt_ids);
    auto& ids = request.sequences.back();
    ids.insert(ids.end(), answered.answer_ids.begin(), answered.answer_ids.end());
  }
  request.compared = [&](size_t sequence, size_t row) {
    const auto& ids = request.sequences[sequence];
    if (row + 1 < answers[sequence].prompt_ids.size() || row + 1 >= ids.size()) return false;
    const int32_t next = ids[row + 1];
    return tokenizer.is_special(next) ||
           is_structural(tokenizer.decode({&next, 1}, SkipSpecial::no));
  };
  const LoadedModel reference = TRY(load_model(first));
  const LoadedModel model = TRY(load_model(second));
  request.model = {.backend = model.backend.get(), .config = &model.config};
  request.reference = {.backend = reference.backend.get(), .config = &reference.config};
  const ScoreResult result = TRY(score(request));
  return *result.divergence;
}

std::string report_text(const CanaryReport& report) {
  const bool two = report.names.size() == 2;
  std::string text;
  for (const Change& change : report.changes)
    text += two ? concat("flip   ", change.item->id, "\n       ", report.names[0], ": ",
                         change.expected, "\n       ", report.names[1], ": ", change.found, "\n")
                : concat("wrong  ", change.item->id, ": ", change.expected, "\n");
  text += concat(report.changes.size(), " of ", report.decisions, " decisions ",
                 two ? "changed" : "are wrong", "\n");
  if (const auto& d = report.structure)
    text += concat("structural tokens: KL mean ", scientific_text(d->kl_mean, 3), ", p99 ",
                   scientific_text(d->kl_p99, 3), ", max ", scientific_text(d->kl_max, 3),
                   "; the same likeliest ", "token at ",
                   static_cast<int64_t>(d->top1_agreement * double(d->positions) + 0.5), " of ",
                   d->positions, "\n");
  return text;
}

Json report_json(const CanaryReport& report) {
  const bool two = report.names.size() == 2;
  Json names = Json::Array{};
  for (const std::string& name : report.names) names.push_back(name);
  Json changes = Json::Array{};
  for (const Change& change : report.changes)
    changes.push_back(json_object({{"id", change.item->id},
                                   {"task", change.item->task},
                                   {two ? "first" : "why", change.expected},
                                   {two ? "second" : "decision", change.found}}));
  Json json = json_object({{"models", std::move(names)},
                           {"decisions", Json(report.decisions)},
                           {two ? "changed" : "wrong", std::move(changes)}});
  if (const auto& d = report.structure)
    json.set("structural_tokens", json_object({{"positions", Json(d->positions)},
                                               {"kl_mean", Json(d->kl_mean)},
                                               {"kl_p99", Json(d->kl_p99)},
                                               {"kl_max", Json(d->kl_max)},
                                               {"top1_agreement", Json(d->top1_agreement)}}));
  return json;
}

Result<std::vector<TaskItem>> canary_items(const Arguments& arguments) {
  if (const auto files = arguments.text("tasks")) return read_tasks(split_list(*files));
  return parse_tasks(builtin_canary().front().text, "the canary");
}

}  // namespace

Result<int> eval_canary(const Arguments& arguments, Terminal& terminal) {
  if (arguments.positional_count() > 3)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "`nibble eval canary`", .expected = "A [B]", .found = "more words"});
  const std::vector<TaskItem> items = TRY(canary_items(arguments));
  install_interrupt_flag();
  CanaryReport report{.decisions = items.size()};
  std::vector<std::vector<Answered>> answers;
  bool folders = true;
  for (int i = 1; i < arguments.positional_count(); ++i) {
    const std::string& word = arguments.positional(i);
    const auto model = TRY(ask_word(arguments, word, i == 1 ? "model" : "against-model", terminal));
    folders = folders && !is_url(word);
    report.names.push_back(word);
    answers.push_back(
        TRY(answers_of(*model, items, {.name = word, .unit = "decisions"}, terminal)));
  }
  if (answers.size() == 1) {
    report.changes = TRY(wrong_decisions(items, answers[0]));
  } else {
    report.changes = changed_decisions(items, answers[0], answers[1]);
    if (folders) report.structure = TRY(structural_divergence(arguments, answers[0], terminal));
  }
  TRY(terminal.out(arguments.enabled("json") ? report_json(report).dump() + "\n"
                                             : report_text(report)));
  return report.changes.empty() ? kExitOk : kExitFailure;
}

}  // namespace nibble
