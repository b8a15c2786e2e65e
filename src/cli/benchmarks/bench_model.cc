// nibble bench model: prompt and generation speed of a checkpoint in this process, as a table in
// the manner of llama-bench.
#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "bench/load_text.h"
#include "bench/model_bench.h"
#include "bench/summary.h"
#include "cli/benchmarks/bench_lists.h"
#include "cli/benchmarks/bench_machine.h"
#include "cli/card/nvml.h"
#include "cli/options/flag_errors.h"
#include "cli/plan/plan_machine.h"
#include "plan/text_table.h"

namespace nibble {
namespace {

constexpr int64_t kTokensMax = 1 << 22;
constexpr int64_t kBatchMax = 1024;

constexpr auto kOwnOptions = std::to_array<Option>({
    {"n-prompt", "N[,N...]", "512", "lengths of prompts; 0: none", "-p"},
    {"n-gen", "N[,N...]", "128", "tokens to generate; 0: none", "-n"},
    {"n-depth", "N[,N...]", "0", "tokens in the cache before", "-d"},
    {"n-batch", "N[,N...]", "1", "sequences at once", "-b"},
    {"repetitions", "N", "5", "measurements of each row, after one that counts for nothing", "-r"},
    {"bandwidth", "GB/S", "",
     "of the memory that holds the weights, for the computed bound; default: the card's by its "
     "data sheet"},
    {"json", "FILE", "", "write machine, rows and each measurement as JSON"},
    {"markdown", "FILE", "", "write the table as Markdown"},
});
constexpr auto kOptions =
    joined_options(kOwnOptions, kServingOptions, kEngineOptions, kModelOptions);

struct Request {
  std::vector<ModelTest> tests;
  int32_t repetitions = 5;
  double bandwidth_bytes = 0.0;  // 0: by the card
};

Result<std::vector<int64_t>> list_of(const Arguments& arguments, std::string_view name,
                                     CountRange range) {
  return read_counts(name, *arguments.text(name), range);
}

Result<Request> read_request(const Arguments& arguments) {
  FlagErrors errors;
  Request request;
  const auto prompts = errors.take(list_of(arguments, "n-prompt", {0, kTokensMax}));
  const auto generated = errors.take(list_of(arguments, "n-gen", {0, kTokensMax}));
  const auto depths = errors.take(list_of(arguments, "n-depth", {0, kTokensMax}));
  const auto batches = errors.take(list_of(arguments, "n-batch", {1, kBatchMax}));
  request.repetitions =
      static_cast<int32_t>(errors.take(arguments.integer("repetitions", 1, 1000)));
  constexpr double kGiga = 1e9;
  if (arguments.given("bandwidth"))
    request.bandwidth_bytes = errors.take(arguments.number("bandwidth", 0.001, 1e6)) * kGiga;
  const auto add = [&](ModelTestKind kind, const std::vector<int64_t>& tokens) {
    for (const int64_t count : tokens)
      for (const int64_t depth : depths)
        for (const int64_t batch : batches)
          if (count > 0)
            request.tests.push_back({kind, static_cast<int32_t>(count), static_cast<int32_t>(depth),
                                     static_cast<int32_t>(batch)});
  };
  add(ModelTestKind::prompt, prompts);
  add(ModelTestKind::generation, generated);
  if (errors.empty() && request.tests.empty())
    errors.add(make_error(ErrorCode::invalid_argument,
                          {.what = "-p and -n", .expected = "one of them above 0"}));
  TRY(errors.result());
  return request;
}

struct Row {
  ModelTest test;
  std::vector<double> rates;
  double bound = 0.0;  // tokens a second; 0: not known
};

/// The tokens a second that the memory allows; of generation alone, as prompts are bound by
/// arithmetic.
double bound_of(const ModelTest& test, const PlanModel& model, const MemoryRequest& request,
                const std::optional<PlannedCard>& card) {
  if (test.kind == ModelTestKind::prompt) return 0.0;
  const int64_t context = std::max<int64_t>(test.depth, 1) + test.tokens / 2;
  return speed_row(model, request, card, test.batch, context).tokens_per_second;
}

/// The memory that holds the weights, if its bandwidth is known.
std::optional<PlannedCard> memory_of(const Request& request, const Backend& backend) {
  if (request.bandwidth_bytes > 0.0) return PlannedCard{.bandwidth_bytes = request.bandwidth_bytes};
  const auto on_card = backend.device_memory();
  const DriverFacts driver = ask_driver();
  if (!on_card || driver.gpus.empty()) return std::nullopt;
  return card_of_device(driver.gpus.front());
}

std::string rate_text(const Summary& rates) {
  return concat(fixed_text(rates.mean, 2), " ± ", fixed_text(rates.deviation, 2));
}

/// The deviation of a sample, as llama-bench prints it: over n - 1.
Summary sampled(const std::vector<double>& rates) {
  Summary summary = summarize(rates, {});
  const auto count = static_cast<double>(rates.size());
  if (rates.size() > 1) summary.deviation *= std::sqrt(count / (count - 1.0));
  return summary;
}

std::vector<std::vector<std::string>> table_of(const std::vector<Row>& rows,
                                               const std::vector<std::string>& facts) {
  std::vector<std::vector<std::string>> table = {
      {"model", "size", "backend", "sequences", "test", "t/s", "bound t/s (computed)", "of it"}};
  for (const Row& row : rows) {
    const Summary rates = sampled(row.rates);
    std::vector<std::string> cells = facts;
    cells.push_back(concat(row.test.batch));
    cells.push_back(model_test_name(row.test));
    cells.push_back(rate_text(rates));
    const bool known = row.bound > 0.0;
    constexpr double kPercent = 100.0;
    cells.push_back(known ? fixed_text(row.bound, 1) : "-");
    cells.push_back(known ? fixed_text(rates.mean / row.bound * kPercent, 1) + " %" : "-");
    table.push_back(std::move(cells));
  }
  return table;
}

Json json_of(const std::vector<Row>& rows, const std::vector<std::string>& facts) {
  Json::Array list;
  for (const Row& row : rows) {
    const Summary rates = sampled(row.rates);
    Json::Array samples;
    for (const double rate : row.rates) samples.push_back(Json(rate));
    const bool prompt = row.test.kind == ModelTestKind::prompt;
    list.push_back(json_object({{"test", Json(model_test_name(row.test))},
                                {"n_prompt", Json(prompt ? row.test.tokens : 0)},
                                {"n_gen", Json(prompt ? 0 : row.test.tokens)},
                                {"n_depth", Json(row.test.depth)},
                                {"sequences", Json(row.test.batch)},
                                {"avg_ts", Json(rates.mean)},
                                {"stddev_ts", Json(rates.deviation)},
                                {"samples_ts", Json(std::move(samples))},
                                {"bound_ts", row.bound > 0.0 ? Json(row.bound) : Json()}}));
  }
  return json_object({{"machine", Json(bench_machine())},
                      {"model", Json(facts[0])},
                      {"size", Json(facts[1])},
                      {"backend", Json(facts[2])},
                      {"rows", Json(std::move(list))}});
}

Result<void> measure_all(ModelBench& bench, const Request& request, std::vector<Row>& rows,
                         Terminal& terminal) {
  for (Row& row : rows) {
    TRY(bench.measure(row.test));  // the first one warms up
    for (int32_t i = 0; i < request.repetitions; ++i)
      row.rates.push_back(TRY(bench.measure(row.test)));
    terminal.err(concat(model_test_name(row.test), ", ", row.test.batch,
                        row.test.batch == 1 ? " sequence: " : " sequences: ",
                        rate_text(sampled(row.rates)), " tokens/s\n"));
  }
  return {};
}

/// The flags with the context that the tests need, where none was given.
Arguments with_context(const Arguments& arguments, const Request& request) {
  if (arguments.given(kMaxModelLenOption.name)) return arguments;
  int32_t context = 0;
  for (const ModelTest& test : request.tests) context = std::max(context, context_of(test));
  return arguments.with(kMaxModelLenOption.name, concat(context));
}

/// A model that is loaded and the rows that it is to fill.
struct Bench {
  std::unique_ptr<Engine> engine;
  int32_t vocab_rows = 0;
  std::vector<std::string> facts;  // the first columns of the table
  std::vector<Row> rows;
};

Result<Bench> load(const Arguments& arguments, const Request& request, Terminal& terminal) {
  const auto folder = TRY(first_folder(arguments, terminal));
  const PlanModel model = TRY(read_plan_model(arguments, arguments.positional(0), {}, terminal));
  int32_t sequences = 1;
  for (const ModelTest& test : request.tests) sequences = std::max(sequences, test.batch);
  EngineSetup setup = TRY(set_up_engine(with_context(arguments, request), folder,
                                        {.use = EngineUse::serving, .sequences_max = sequences}));
  terminal.err(setup.model.notice);
  const Backend& backend = *setup.model.backend;
  MemoryRequest memory;
  memory.page_bytes = backend.page_bytes();
  memory.slot_bytes = backend.state_slot_bytes();
  const std::optional<PlannedCard> card = memory_of(request, backend);
  Bench bench;
  for (const ModelTest& test : request.tests)
    bench.rows.push_back({.test = test, .bound = bound_of(test, model, memory, card)});
  constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
  bench.facts = {folder_name(folder),
                 fixed_text(static_cast<double>(setup.model.weight_bytes) / kGib, 2) + " GiB",
                 std::string(backend.name())};
  bench.vocab_rows = setup.model.config.vocab_rows;
  bench.engine =
      TRY(Engine::start(std::move(setup.model.backend), setup.model.config,
                        {.settings = setup.settings(), .step_deadline = setup.step_deadline}));
  return bench;
}

Result<int> run(const Arguments& arguments, Terminal& terminal) {
  const Request request = TRY(read_request(arguments));
  install_interrupt_flag();
  Bench bench = TRY(load(arguments, request, terminal));
  ModelBench measuring(*bench.engine, bench.vocab_rows, interrupted);
  const auto measured = measure_all(measuring, request, bench.rows, terminal);
  std::erase_if(bench.rows, [](const Row& row) { return row.rates.empty(); });
  const std::string table = markdown_table(table_of(bench.rows, bench.facts));
  if (!bench.rows.empty()) TRY(terminal.out(table));
  if (!measured.ok())
    return end_of_verb("bench model", bench.engine->failure(), measured.error(), terminal);
  if (const auto path = arguments.text("markdown")) TRY(write_file_atomically(*path, table));
  if (const auto path = arguments.text("json"))
    TRY(write_file_atomically(*path, json_of(bench.rows, bench.facts).dump_pretty()));
  return kExitOk;
}

Result<void> check(const Arguments& arguments) {
  FlagErrors errors;
  errors.add(read_request(arguments));
  errors.add(check_engine_flags(arguments, kServingNeeds));
  return errors.result();
}

}  // namespace

const Verb kBenchModelVerb = {.name = "bench model",
                              .positionals = "DIR",
                              .summary = "Prompt and generation speed of a checkpoint",
                              .options = kOptions,
                              .run = run,
                              .check = check};

}  // namespace nibble
