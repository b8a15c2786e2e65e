// The same tasks with pages in each format, one after the other, and the divergence from BF16 pages
// where both are given what BF16 has answered.
#include "cli/evaluating/eval_kv.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "cli/evaluating/answered.h"
#include "cli/evaluating/kv_report.h"
#include "cli/options/folders.h"
#include "cli/serving/client_setup.h"
#include "cli/serving/model_loader.h"
#include "eval/score.h"
#include "eval/task_check.h"
#include "eval/task_report.h"

namespace nibble {
namespace {

using Sequences = std::vector<std::vector<int32_t>>;

Result<std::vector<KvFormat>> asked_formats(const Arguments& arguments) {
  std::vector<KvFormat> formats;
  const std::string words = arguments.text("formats").value_or("");
  for (const std::string& word : split_list(words)) {
    const auto kind =
        std::ranges::find_if(kKvCaches, [&](KvCache each) { return word == kv_cache_name(each); });
    if (kind == std::end(kKvCaches) || *kind == KvCache::automatic || *kind == KvCache::bf16)
      return make_error(ErrorCode::invalid_argument,
                        {.what = "--formats",
                         .expected = "fp8, turboquant_4bit_nc, nvfp4 with commas between them",
                         .found = concat('"', word, '"')});
    formats.push_back(kv_format_of(*kind, KvFormat::f32));
  }
  return formats;
}

Arguments with_format(const Arguments& arguments, KvFormat format) {
  return arguments.with(kKvCacheOption.name, kv_traits(format).option);
}

Result<std::vector<Answered>> answers_with(const Arguments& arguments, KvFormat format,
                                           const std::vector<TaskItem>& items, Terminal& terminal) {
  const auto model =
      TRY(ask_folder(with_format(arguments, format), arguments.positional(1), terminal));
  return answers_of(*model, items, {.name = kv_traits(format).option, .unit = "items"}, terminal);
}

Result<ModelOutcomes> outcomes_of(const std::vector<TaskItem>& items,
                                  const std::vector<Answered>& answers, KvFormat format) {
  ModelOutcomes outcomes{.name = kv_traits(format).option};
  for (size_t i = 0; i < items.size(); ++i) {
    const Verdict verdict = TRY(judge(items[i], answers[i].answer)).verdict;
    outcomes.outcomes.push_back(verdict == Verdict::right   ? Outcome::right
                                : verdict == Verdict::wrong ? Outcome::wrong
                                                            : Outcome::unscored);
  }
  return outcomes;
}

std::vector<KvTask> tasks_of(const std::vector<ReportRow>& rows) {
  std::vector<KvTask> tasks;
  for (const ReportRow& row : rows)
    tasks.push_back({.name = row.task,
                     .right = row.shares.back().right,
                     .scored = row.shares.back().scored,
                     .difference = row.difference});
  return tasks;
}

/// Prompts with their answers, of at most `tokens_max` tokens in all: half of them the longest, to
/// reach far positions, half the shortest, to have many.
Sequences compared_sequences(const std::vector<Answered>& answers, int64_t tokens_max) {
  Sequences all;
  for (const Answered& answered : answers) {
    if (answered.prompt_ids.empty()) continue;
    all.push_back(answered.prompt_ids);
    all.back().insert(all.back().end(), answered.answer_ids.begin(), answered.answer_ids.end());
  }
  std::ranges::stable_sort(all, [](const auto& a, const auto& b) { return a.size() > b.size(); });
  Sequences out;
  size_t begin = 0;
  size_t end = all.size();
  int64_t left = tokens_max / 2;
  const auto fits = [&](const auto& ids) { return static_cast<int64_t>(ids.size()) <= left; };
  const auto take = [&](size_t index) {
    left -= static_cast<int64_t>(all[index].size());
    out.push_back(std::move(all[index]));
  };
  while (begin < end && fits(all[begin])) take(begin++);
  left += tokens_max - tokens_max / 2;
  while (begin < end && fits(all[end - 1])) take(--end);
  return out;
}

Result<LoadedModel> load_with(const Arguments& arguments, KvFormat format, Terminal& terminal) {
  ModelRequest request = TRY(model_request(with_format(arguments, format), ""));
  request.folder = TRY(checkpoint_folder(arguments.positional(1), terminal));
  request.use = ModelUse::judging;
  return load_model(request);
}

/// The divergence of pages in `format` from `reference`, which has BF16 pages.
Result<std::vector<KlAtPositions>> divergence_of(const Arguments& arguments, KvFormat format,
                                                 const Sequences& sequences,
                                                 const LoadedModel& reference, Terminal& terminal) {
  const LoadedModel model = TRY(load_with(arguments, format, terminal));
  KlByPosition positions;
  const std::string label = concat(kv_traits(format).option, ", divergence");
  Progress progress(terminal, {.label = label, .unit = "tokens"});
  ScoreRequest request{
      .sequences = sequences,
      .model = {.backend = model.backend.get(), .config = &model.config},
      .reference = ScoredModel{.backend = reference.backend.get(), .config = &reference.config},
      .diverges = [&](size_t sequence, size_t row, double kl) {
        positions.add(sequence, row, kl);
      }};
  request.progress = [&](int64_t done, int64_t total) {
    progress.update(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
    return interrupted() ? ScoreRequest::Next::stop : ScoreRequest::Next::go_on;
  };
  TRY(score(request));
  progress.finish();
  return positions.summary();
}

/// The first `most` items of each task and mode.
void limit_items(std::vector<TaskItem>& items, int64_t most) {
  std::map<std::pair<std::string, std::optional<bool>>, int64_t> kept;
  std::erase_if(items, [&](const TaskItem& item) {
    return ++kept[{item.task, item.thinking}] > most;
  });
}

Result<ModelConfig> config_of(const Arguments& arguments, Terminal& terminal) {
  const auto folder = TRY(checkpoint_folder(arguments.positional(1), terminal));
  return ModelConfig::parse(TRY(Checkpoint::open(folder)).config());
}

int64_t token_bytes(const ModelConfig& config, KvFormat format) {
  return int64_t{config.count(LayerKind::attention)} * config.attention.kv_heads *
         kv_token_bytes(format, config.attention.head_dim);
}

}  // namespace

Result<int> eval_kv(const Arguments& arguments, Terminal& terminal) {
  if (arguments.positional_count() < 3)
    return make_error(
        ErrorCode::invalid_argument,
        {.what = "`nibble eval kv`", .expected = "DIR TASKS...", .found = "too few words"});
  const std::vector<KvFormat> formats = TRY(asked_formats(arguments));
  KvReport report;
  if (arguments.given("within")) report.limits.points = TRY(arguments.number("within", 0.0, 100.0));
  report.limits.kl = TRY(arguments.number("kl-max", 0.0, 100.0));
  int64_t tokens_max = 60000;
  if (arguments.given("max-tokens"))
    tokens_max = TRY(arguments.integer("max-tokens", 2, int64_t{1} << 40));
  std::vector<std::string> files;
  for (int i = 2; i < arguments.positional_count(); ++i) files.push_back(arguments.positional(i));
  std::vector<TaskItem> items = TRY(read_tasks(files));
  if (arguments.given("limit")) limit_items(items, TRY(arguments.integer("limit", 1, 1 << 20)));
  const ModelConfig config = TRY(config_of(arguments, terminal));
  for (const KvFormat format : formats) TRY(check_kv_head_dim(format, config));
  install_interrupt_flag();

  report.bf16_bytes = token_bytes(config, KvFormat::bf16);
  const auto usual = TRY(answers_with(arguments, KvFormat::bf16, items, terminal));
  const ModelOutcomes usual_outcomes = TRY(outcomes_of(items, usual, KvFormat::bf16));
  const Sequences sequences = compared_sequences(usual, tokens_max);
  const LoadedModel reference = TRY(load_with(arguments, KvFormat::bf16, terminal));
  for (const KvFormat format : formats) {
    KvFinding finding{.format = format,
                      .token_bytes = token_bytes(config, format),
                      .errors = measure_kv_format(format, config.attention.head_dim)};
    const auto answers = TRY(answers_with(arguments, format, items, terminal));
    const ModelOutcomes outcomes = TRY(outcomes_of(items, answers, format));
    finding.tasks = tasks_of(report_rows(items, {usual_outcomes, outcomes}));
    finding.kl = TRY(divergence_of(arguments, format, sequences, reference, terminal));
    report.findings.push_back(std::move(finding));
  }
  TRY(terminal.out(arguments.enabled("json") ? kv_report_json(report).dump() + "\n"
                                             : kv_report_text(report)));
  const bool harmless = std::ranges::all_of(report.findings, [&](const KvFinding& finding) {
    return judge_kv(finding, report.limits).verdict == KvVerdict::harmless;
  });
  return harmless ? kExitOk : kExitFailure;
}

}  // namespace nibble
