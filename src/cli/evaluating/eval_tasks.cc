// One model after the other over the same items; what an earlier run has answered is not asked
// again.
#include "cli/evaluating/eval_tasks.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "cli/evaluating/asked_model.h"
#include "cli/options/folders.h"
#include "cli/serving/model_loader.h"
#include "eval/task_check.h"
#include "eval/task_item.h"
#include "eval/task_report.h"
#include "eval/task_results.h"

namespace nibble {
namespace {

/// A model by the word for it, and where its results are kept.
struct Side {
  std::string word;
  std::string model_flag;   // "model" or "against-model"
  std::string output_flag;  // "output" or "against-output"
};

struct Run {
  ModelOutcomes outcomes;
  bool whole = true;  // false: interrupted
};

Result<AskSettings> ask_settings(const Arguments& arguments) {
  AskSettings settings;
  settings.temperature = TRY(arguments.number("temperature", 0.0, 100.0));
  settings.seed = TRY(arguments.integer("seed", 0, INT64_MAX));
  if (arguments.given("max-tokens"))
    settings.max_tokens = TRY(arguments.integer("max-tokens", 1, 1 << 24));
  return settings;
}

void note_result(ModelOutcomes& outcomes, size_t number, const TaskResult& result) {
  const Verdict verdict = result.judgement.verdict;
  outcomes.outcomes[number] = verdict == Verdict::right   ? Outcome::right
                              : verdict == Verdict::wrong ? Outcome::wrong
                                                          : Outcome::unscored;
  outcomes.cut += result.answer.finish == "length";
}

/// Asks one model all items.
class Asking {
 public:
  Asking(AskedModel& model, const std::vector<TaskItem>& items, TaskResults& results)
      : model_(model), items_(items), results_(results) {}

  Result<Run> run(AskSettings settings, const std::string& name, Terminal& terminal) {
    settings.model = model_.model();
    run_.outcomes = {.name = name, .outcomes = std::vector(items_.size(), Outcome::failed)};
    TRY(take_earlier());
    Progress progress(terminal, {.label = name, .unit = "items"});
    while (true) {
      while (!interrupted() && next_ < left_.size() && on_the_way_ < model_.requests_max()) {
        model_.ask(left_[next_], task_request(items_[left_[next_]], settings));
        ++next_;
        ++on_the_way_;
      }
      if (on_the_way_ == 0 || interrupted()) break;
      for (const AskedModel::Reply& reply : model_.take()) TRY(take(reply));
      TRY(model_.failure());
      progress.update(items_.size() - left_.size() + next_ - static_cast<size_t>(on_the_way_),
                      items_.size());
    }
    progress.finish();
    run_.whole = on_the_way_ == 0 && next_ == left_.size();
    if (failed_ > 0)
      terminal.err(concat(name, ": ", failed_, " items failed, first ", first_failure_, "\n"));
    return std::move(run_);
  }

 private:
  Result<void> take_earlier() {
    for (size_t i = 0; i < items_.size(); ++i) {
      const TaskResult* found = TRY(results_.find(items_[i]));
      if (found == nullptr)
        left_.push_back(i);
      else
        note_result(run_.outcomes, i, *found);
    }
    return {};
  }

  Result<void> take(const AskedModel::Reply& reply) {
    constexpr int kOk = 200;
    --on_the_way_;
    const TaskItem& item = items_[reply.number];
    if (reply.status != kOk) return fail(item, refusal_of(reply));
    auto answer = parse_task_answer(item, reply.body);
    if (!answer.ok()) return fail(item, answer.error().message);
    auto judgement = judge(item, answer.value());
    if (!judgement.ok()) return fail(item, judgement.error().message);
    TaskResult result{.id = item.id,
                      .digest = item.digest,
                      .answer = std::move(answer).value(),
                      .judgement = std::move(judgement).value()};
    note_result(run_.outcomes, reply.number, result);
    return results_.add(item, std::move(result));
  }

  /// A failed item is not recorded, so the next run asks it again.
  Result<void> fail(const TaskItem& item, const std::string& why) {
    if (failed_++ == 0) first_failure_ = concat(item.id, ": ", why.substr(0, 300));
    return {};
  }

  AskedModel& model_;
  const std::vector<TaskItem>& items_;
  TaskResults& results_;
  std::vector<size_t> left_;  // items to ask
  size_t next_ = 0;
  int64_t on_the_way_ = 0;
  int64_t failed_ = 0;
  std::string first_failure_;
  Run run_;
};

/// The results that a file holds, with no model at all.
Result<Run> read_side(const Side& side, const std::vector<TaskItem>& items, Terminal& terminal) {
  TaskResults results = TRY(TaskResults::read(side.word));
  Run run{.outcomes = {.name = std::filesystem::path(side.word).filename().string(),
                       .outcomes = std::vector(items.size(), Outcome::failed)}};
  int64_t missing = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    const TaskResult* found = TRY(results.find(items[i]));
    missing += found == nullptr;
    if (found == nullptr) continue;
    note_result(run.outcomes, i, *found);
  }
  if (missing > 0) terminal.err(concat(side.word, ": has no result of ", missing, " items\n"));
  return run;
}

Result<Run> run_side(const Arguments& arguments, const Side& side,
                     const std::vector<TaskItem>& items, Terminal& terminal) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(side.word, ignored)) return read_side(side, items, terminal);
  const AskSettings settings = TRY(ask_settings(arguments));
  const auto model = TRY(ask_word(arguments, side.word, side.model_flag, terminal));
  Json head = model->head();
  head.set("temperature", Json(settings.temperature));
  head.set("seed", Json(settings.seed));
  head.set("max_tokens", settings.max_tokens ? Json(*settings.max_tokens) : Json());
  const auto output = arguments.text(side.output_flag);
  TaskResults results = output ? TRY(TaskResults::open(*output, head)) : TaskResults::in_memory();
  std::string name = is_url(side.word) ? model->model() : folder_name(side.word);
  if (!is_url(side.word) && wants_random_weights(arguments)) name += " (random weights)";
  return Asking(*model, items, results).run(settings, name, terminal);
}

/// At most `most` items of each task and mode.
std::vector<TaskItem> first_of_each(std::vector<TaskItem> items, int64_t most) {
  std::map<std::pair<std::string, std::optional<bool>>, int64_t> kept;
  std::erase_if(items, [&](const TaskItem& item) {
    return ++kept[{item.task, item.thinking}] > most;
  });
  return items;
}

int interrupted_words(const Arguments& arguments, const Side& side, Terminal& terminal) {
  const bool kept = arguments.given(side.output_flag);
  terminal.err(kept ? "interrupted; the same command goes on where it stopped\n"
                    : "interrupted; with --output FILE a later run would go on\n");
  return kExitInterrupted;
}

/// Says whether a loss is within what is allowed; the exit code.
Result<int> judge_loss(const Arguments& arguments, const ReportRow& all, Terminal& terminal) {
  if (!arguments.given("within")) return kExitOk;
  const double within = TRY(arguments.number("within", 0.0, 100.0));
  const double loss = -100 * all.difference.delta;
  if (loss <= within) return kExitOk;
  terminal.err(concat("the loss of ", loss, " points is more than ", within, "\n"));
  return kExitFailure;
}

}  // namespace

Result<int> eval_tasks(const Arguments& arguments, Terminal& terminal) {
  std::vector<std::string> files;
  for (int i = 1; i < arguments.positional_count(); ++i) files.push_back(arguments.positional(i));
  std::vector<TaskItem> items = TRY(read_tasks(files));
  if (arguments.given("limit"))
    items = first_of_each(std::move(items), TRY(arguments.integer("limit", 1, 1 << 20)));
  std::vector<Side> sides = {{arguments.positional(0), "model", "output"}};
  if (const auto other = arguments.text("against"))
    sides.push_back({*other, "against-model", "against-output"});
  install_interrupt_flag();
  std::vector<ModelOutcomes> models;
  for (const Side& side : sides) {
    Run run = TRY(run_side(arguments, side, items, terminal));
    if (!run.whole) return interrupted_words(arguments, side, terminal);
    models.push_back(std::move(run.outcomes));
  }
  if (models.size() == 2 && models[0].name == models[1].name)
    for (size_t m = 0; m < 2; ++m) models[m].name = sides[m].word;
  const auto rows = report_rows(items, models);
  TRY(terminal.out(arguments.enabled("json") ? report_json(rows, models).dump() + "\n"
                                             : report_text(rows, models)));
  const bool failed = std::ranges::any_of(
      rows.back().shares, [](const ScoredShare& share) { return share.failed > 0; });
  if (failed) return kExitFailure;
  return models.size() == 2 ? judge_loss(arguments, rows.back(), terminal) : Result<int>(kExitOk);
}

}  // namespace nibble
