// nibble bench quantize: how fast a checkpoint is rounded without data, and what one quantization
// costs. Its output is thrown away.
#include <chrono>
#include <filesystem>

#include "base/file.h"
#include "bench/load_series.h"
#include "bench/load_text.h"
#include "cli/benchmarks/bench_machine.h"
#include "cli/benchmarks/work_folder.h"
#include "cli/loading/thread_count.h"
#include "cli/options/flag_errors.h"
#include "cli/options/folders.h"
#include "plan/text_table.h"
#include "quantize/quantize.h"

namespace nibble {
namespace {

constexpr Option kOptions[] = {
    {"recipe", "NAME|FILE", kDefaultRecipe, "as of `nibble quantize`"},
    {"algorithm", "NAME", "search", "search, amax or four-over-six"},
    {"rounds", "N", "3", "quantizations, whose spread is shown"},
    kThreadsOption,
    {"work", "DIR", ".", "where the output is written and removed: it needs as much room as one"},
    {"price", "PER_HOUR", "", "of the machine, for the cost of one quantization"},
    {"currency", "NAME", "EUR", "of --price"},
    {"json", "FILE", "", "write machine and every round as JSON"},
    kRevisionOption,
};

struct Request {
  int32_t rounds = 3;
  double price_per_hour = 0.0;
  QuantizeOptions options;
};

Result<Request> read_request(const Arguments& arguments) {
  FlagErrors errors;
  Request request;
  request.rounds = static_cast<int32_t>(errors.take(arguments.integer("rounds", 1, 1000)));
  errors.add(arguments.choice("algorithm", {"search", "amax", "four-over-six"}));
  if (errors.empty())
    request.options.algorithm = errors.take(parse_round_algorithm(*arguments.text("algorithm")));
  request.options.threads = errors.take(read_threads(arguments));
  if (arguments.given("price"))
    request.price_per_hour = errors.take(arguments.number("price", 1e-6, 1e6));
  TRY(errors.result());
  return request;
}

struct Work {
  const Checkpoint& checkpoint;
  const QuantPlan& plan;
  const Recipe& recipe;
};

struct Rounds {
  std::vector<double> seconds;
  int64_t weights = 0;   // weights that were rounded
  int64_t bytes_in = 0;  // bytes of all tensors
  int64_t bytes_out = 0;
};

Result<void> run_round(const Arguments& arguments, const Request& request, const Work& work,
                       Rounds& rounds) {
  const WorkFolder folder(*arguments.text("work"));
  QuantizeOptions options = request.options;
  options.cancelled = interrupted;
  const auto begin = std::chrono::steady_clock::now();
  const QuantizeReport report =
      TRY(quantize(work.checkpoint, work.plan, work.recipe, folder.path(), options));
  rounds.seconds.push_back(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  rounds.weights = report.total_rounded().weights;
  rounds.bytes_in = report.bytes_in;
  rounds.bytes_out = report.bytes_out;
  return {};
}

std::string spread_text(const Spread& spread, double scale, int digits) {
  return concat(fixed_text(spread.median / scale, digits), " (",
                fixed_text(spread.least / scale, digits), "-",
                fixed_text(spread.most / scale, digits), ")");
}

Spread rates(const Rounds& rounds, int64_t amount) {
  std::vector<double> values;
  for (const double seconds : rounds.seconds)
    values.push_back(static_cast<double>(amount) / seconds);
  return spread_of(std::move(values));
}

std::vector<std::vector<std::string>> table_of(const Arguments& arguments, const Request& request,
                                               const Rounds& rounds) {
  constexpr double kMillion = 1e6;
  constexpr double kSecondsPerHour = 3600.0;
  const Spread seconds = spread_of(rounds.seconds);
  std::vector<std::vector<std::string>> rows = {
      {concat(rounds.seconds.size(), " rounds, ", request.options.threads, " threads"),
       "median (least-most)"},
      {"seconds of one quantization", spread_text(seconds, 1.0, 2)},
      {concat("million weights rounded a second, of ",
              fixed_text(static_cast<double>(rounds.weights) / kMillion, 1), " million"),
       spread_text(rates(rounds, rounds.weights), kMillion, 2)},
      {"MB read a second", spread_text(rates(rounds, rounds.bytes_in), kMillion, 1)},
      {"MB written a second", spread_text(rates(rounds, rounds.bytes_out), kMillion, 1)}};
  if (request.price_per_hour > 0.0)
    rows.push_back({concat("cost of one, ", *arguments.text("currency")),
                    spread_text(seconds, kSecondsPerHour / request.price_per_hour, 5)});
  return rows;
}

Json json_of(const Request& request, const Rounds& rounds) {
  Json::Array seconds;
  for (const double each : rounds.seconds) seconds.push_back(Json(each));
  return json_object({{"machine", Json(bench_machine())},
                      {"threads", Json(request.options.threads)},
                      {"weights", Json(rounds.weights)},
                      {"bytes_in", Json(rounds.bytes_in)},
                      {"bytes_out", Json(rounds.bytes_out)},
                      {"seconds", Json(std::move(seconds))}});
}

Result<int> run(const Arguments& arguments, Terminal& terminal) {
  const Request request = TRY(read_request(arguments));
  const Recipe recipe = TRY(load_recipe(*arguments.text("recipe")));
  const auto folder = TRY(first_folder(arguments, terminal));
  const Checkpoint checkpoint = TRY(Checkpoint::open(folder));
  const QuantPlan plan = TRY(plan_quantization(checkpoint, recipe, Dialect::compressed_tensors));
  install_interrupt_flag();
  Rounds rounds;
  for (int32_t round = 0; round < request.rounds && !interrupted(); ++round) {
    const auto done = run_round(arguments, request, {checkpoint, plan, recipe}, rounds);
    if (!done.ok() && done.error().code == ErrorCode::cancelled) break;
    TRY(done);
    terminal.err(concat("round ", round + 1, " of ", request.rounds, ": ",
                        fixed_text(rounds.seconds.back(), 2), " s\n"));
  }
  if (rounds.seconds.empty()) return kExitInterrupted;
  TRY(terminal.out(markdown_table(table_of(arguments, request, rounds))));
  if (const auto path = arguments.text("json"))
    TRY(write_file_atomically(*path, json_of(request, rounds).dump_pretty()));
  return interrupted() ? kExitInterrupted : kExitOk;
}

Result<void> check(const Arguments& arguments) {
  TRY(read_request(arguments));
  return {};
}

}  // namespace

const Verb kBenchQuantizeVerb = {.name = "bench quantize",
                                 .positionals = "DIR",
                                 .summary = "Speed and cost of one quantization",
                                 .options = kOptions,
                                 .run = run,
                                 .check = check};

}  // namespace nibble
