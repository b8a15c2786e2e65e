// nibble bench serve: a load test of any OpenAI-compatible server. The client is this process; the
// server is another.
#include <cmath>
#include <ctime>
#include <filesystem>

#include "base/file.h"
#include "bench/load_page.h"
#include "bench/load_text.h"
#include "bench/vllm_result.h"
#include "cli/benchmarks/bench_load_options.h"
#include "cli/benchmarks/bench_machine.h"
#include "plan/text_table.h"

namespace nibble {
namespace {

/// One server and the requests that it gets.
struct Bench {
  LoadTarget target;
  WorkloadPlan plan;
};

/// Seeds of rounds lie apart, so that no round finds the prompts of another in a prefix cache.
uint64_t round_seed(const LoadOptions& options, size_t level, int32_t round) {
  constexpr uint64_t kApart = 0x100000001B3ULL;
  return options.workload.seed + kApart * (1 + level * static_cast<uint64_t>(options.rounds + 1) +
                                           static_cast<uint64_t>(round));
}

PacePlan pace_of(const LoadOptions& options, const LoadLevel& level, uint64_t seed) {
  PacePlan pace{.clients = level.clients,
                .tasks = options.tasks(level),
                .seconds = options.seconds,
                .turns = options.turns,
                .pause_seconds = options.pause_seconds};
  if (level.clients == 0)
    pace.arrivals = arrival_times(
        {.tasks = pace.tasks, .rate = level.rate, .burstiness = options.burstiness, .seed = seed});
  return pace;
}

/// The tokens of a prompt of so many words, as the server counts them.
Result<int64_t> counted_prompt(const Bench& bench, int64_t words) {
  WorkloadPlan plan = bench.plan;
  plan.input_tokens = words;
  plan.output_tokens = 1;
  plan.range_ratio = 0.0;
  plan.prefix_tokens = 0;
  plan.words_per_token = 1.0;
  const Workload workload(plan);
  const RunRecord run = TRY(run_load(bench.target, workload,
                                     {.pace = {.clients = 1, .tasks = 1},
                                      .outliers = {},
                                      .interrupted = interrupted,
                                      .progress = {}}));
  const RequestRecord& request = run.requests.at(0);
  if (request.outcome != RequestOutcome::complete)
    return make_error(ErrorCode::io,
                      {.what = "the first request, which counts the words of a token",
                       .found = concat(outcome_name(request.outcome), ": ", request.error)});
  return request.usage.prompt_tokens;
}

/// Words for each token: what a longer prompt has more of both, so that a template counts nothing.
Result<double> words_per_token(const Bench& bench) {
  constexpr int64_t kFew = 64, kMany = 320;
  const int64_t few = TRY(counted_prompt(bench, kFew));
  const int64_t many = TRY(counted_prompt(bench, kMany));
  if (many <= few)
    return make_error(ErrorCode::unsupported, {.what = "the usage of the server",
                                               .expected = "more tokens for a longer prompt",
                                               .found = concat(few, " and ", many)});
  return static_cast<double>(kMany - kFew) / static_cast<double>(many - few);
}

Result<Bench> prepare(const LoadOptions& options, const LoadTarget& target) {
  Bench bench{.target = target, .plan = options.workload};
  bench.plan.model = options.model;
  bench.plan.counts_with_events = options.seconds > 0.0;
  if (bench.plan.model.empty()) bench.plan.model = TRY(first_model(target));
  if (bench.plan.form == PromptForm::words)
    bench.plan.words_per_token = TRY(words_per_token(bench));
  return bench;
}

std::string url_text(const LoadTarget& target) {
  return concat("http://", target.url.host, ":", target.url.port,
                target.url.path == "/" ? "" : target.url.path);
}

std::string date_word() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  ::gmtime_r(&now, &parts);
  char text[32] = {};
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &parts);
  return text;
}

/// The series of all steps and rounds.
class Series {
 public:
  Series(const LoadOptions& options, std::vector<Bench> benches, Terminal& terminal)
      : options_(options), benches_(std::move(benches)), terminal_(terminal) {}

  Result<void> run(LoadReport& report) {
    for (size_t level = 0; level < options_.levels.size() && !interrupted(); ++level) {
      const LoadLevel& each = options_.levels[level];
      report.steps.push_back(
          {.name = each.name(), .load = std::isinf(each.number()) ? 0.0 : each.number()});
      TRY(warm_up(each, round_seed(options_, level, options_.rounds)));
      for (int32_t round = 0; round < options_.rounds && !interrupted(); ++round)
        TRY(run_round(level, round, report.steps.back()));
    }
    if (interrupted()) report.note = "interrupted: this is what was measured until then";
    return {};
  }
  Json::Array take_runs() { return std::move(runs_); }

 private:
  Result<void> warm_up(const LoadLevel& level, uint64_t seed) {
    constexpr int64_t kMost = 8;
    const int64_t fallback = std::min<int64_t>(std::max(level.clients, 1), kMost);
    const int64_t tasks = options_.warmups.value_or(fallback);
    for (const Bench& bench : benches_) {
      if (tasks == 0 || interrupted()) break;
      WorkloadPlan plan = bench.plan;
      plan.seed = seed;
      const Workload workload(plan);
      const auto clients =
          static_cast<int32_t>(std::min<int64_t>(tasks, level.clients > 0 ? level.clients : kMost));
      TRY(run_load(bench.target, workload,
                   {.pace = {.clients = clients, .tasks = tasks},
                    .outliers = {},
                    .interrupted = interrupted,
                    .progress = {}}));
    }
    return {};
  }

  /// Both servers get the same requests; the second goes first in every other round.
  Result<void> run_round(size_t level, int32_t round, LoadStep& step) {
    const bool swap = benches_.size() == 2 && round % 2 == 1;
    for (size_t i = 0; i < benches_.size() && !interrupted(); ++i) {
      const size_t server = swap ? 1 - i : i;
      const LoadMetrics metrics = TRY(run_once(level, round, server));
      (server == 0 ? step.first : step.second).rounds.push_back(metrics);
    }
    return {};
  }

  Result<LoadMetrics> run_once(size_t level_index, int32_t round, size_t server) {
    const LoadLevel& level = options_.levels[level_index];
    const Bench& bench = benches_[server];
    WorkloadPlan plan = bench.plan;
    plan.seed = round_seed(options_, level_index, round);
    const Workload workload(plan);
    const RunRecord run = TRY(run_load(bench.target, workload,
                                       {.pace = pace_of(options_, level, plan.seed),
                                        .outliers = options_.outliers,
                                        .interrupted = interrupted,
                                        .progress = {}}));
    LoadMetrics metrics = measure(run, options_.metrics);
    const std::string who =
        benches_.size() == 1 ? "" : (server == 0 ? "first server, " : "second server, ");
    terminal_.err(concat(who, level.name(), ", round ", round + 1, " of ", options_.rounds, ": ",
                         fixed_text(metrics.output_per_second, 1), " output tokens/s, ",
                         metrics.completed, " complete, ", metrics.failed, " failed in ",
                         fixed_text(metrics.seconds, 1), " s\n"));
    keep(level, round, server, vllm_result(head(level, bench), run, metrics));
    return metrics;
  }

  VllmHead head(const LoadLevel& level, const Bench& bench) const {
    VllmHead head{.date = date_word(), .label = "nibble", .model = bench.plan.model};
    head.api = bench.plan.api;
    if (level.clients == 0) head.request_rate = level.rate;
    head.burstiness = options_.burstiness;
    head.clients = level.clients;
    head.goodput = options_.metrics.goodput;
    return head;
  }

  void keep(const LoadLevel& level, int32_t round, size_t server, Json run) {
    run.set("step", Json(level.name()));
    run.set("round", Json(round));
    run.set("server", Json(url_text(benches_[server].target)));
    runs_.push_back(std::move(run));
  }

  const LoadOptions& options_;
  std::vector<Bench> benches_;
  Terminal& terminal_;
  Json::Array runs_;
};

/// A place that cannot be written is told before the run, not after it.
Result<void> check_places(const Arguments& arguments) {
  for (const char* name : {"json", "markdown", "html"}) {
    const auto path = arguments.text(name);
    if (!path) continue;
    const std::filesystem::path folder = std::filesystem::path(*path).parent_path();
    std::error_code failure;
    if (!folder.empty() && !std::filesystem::is_directory(folder, failure))
      return make_error(ErrorCode::not_found, {.what = concat("--", name),
                                               .expected = "a file in a folder that exists",
                                               .found = *path});
  }
  return {};
}

/// vLLM's files: one for each run, and all of them as the list that its sweep plots read.
Result<void> write_results(const std::filesystem::path& folder, const Json::Array& runs) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure)
    return make_error(ErrorCode::io, {.what = concat("--result-dir ", folder.string(), " (",
                                                     failure.message(), ")")});
  for (size_t i = 0; i < runs.size(); ++i)
    TRY(write_file_atomically(folder / concat("run-", i + 1, ".json"), runs[i].dump() + "\n"));
  TRY(write_file_atomically(folder / "summary.json", Json(runs).dump() + "\n"));
  return {};
}

Result<void> write_files(const Arguments& arguments, const LoadReport& report, Json::Array runs) {
  if (const auto path = arguments.text("markdown"))
    TRY(write_file_atomically(*path, load_markdown(report)));
  if (const auto path = arguments.text("html"))
    TRY(write_file_atomically(*path, load_page(report)));
  if (const auto path = arguments.text("result-dir")) TRY(write_results(*path, runs));
  if (const auto path = arguments.text("json"))
    TRY(write_file_atomically(*path, load_json(report, std::move(runs)).dump() + "\n"));
  return {};
}

LoadReport report_of(const LoadOptions& options, const std::vector<Bench>& benches) {
  LoadReport report{.machine = bench_machine(), .settings = load_settings(options)};
  report.first = {.url = url_text(benches[0].target), .model = benches[0].plan.model};
  if (benches.size() == 2)
    report.second = {.url = url_text(benches[1].target), .model = benches[1].plan.model};
  if (options.levels.front().clients == 0) report.load_label = "requests a second";
  report.percents = options.metrics.percents;
  report.goodput = options.metrics.goodput;
  report.shares_prompts = options.turns > 1 || options.workload.prefix_tokens > 0;
  report.price_per_hour = options.price_per_hour;
  report.currency = options.currency;
  return report;
}

Result<int> run(const Arguments& arguments, Terminal& terminal) {
  const LoadOptions options = TRY(read_load_options(arguments));
  TRY(check_places(arguments));
  install_interrupt_flag();
  std::vector<Bench> benches = {TRY(prepare(options, options.first))};
  if (options.second) benches.push_back(TRY(prepare(options, *options.second)));
  LoadReport report = report_of(options, benches);
  Series series(options, std::move(benches), terminal);
  TRY(series.run(report));
  TRY(terminal.out(load_text(report)));
  TRY(write_files(arguments, report, series.take_runs()));
  if (interrupted()) return kExitInterrupted;
  if (const std::string trouble = trouble_of(report); !trouble.empty())
    return make_error(ErrorCode::unsupported, {.what = "not a measurement", .found = trouble});
  return kExitOk;
}

Result<void> check(const Arguments& arguments) {
  TRY(read_load_options(arguments));
  return {};
}

}  // namespace

const Verb kBenchServeVerb = {.name = "bench serve",
                              .positionals = "URL",
                              .summary = "Load test of any OpenAI-compatible server",
                              .options = bench_serve_options(),
                              .run = run,
                              .check = check};

}  // namespace nibble
