// nibble bench startup: how long `nibble serve` takes from the start of its process to ready, and
// to its first token.
#include <chrono>

#include "base/file.h"
#include "bench/load_client.h"
#include "bench/load_series.h"
#include "bench/load_text.h"
#include "cli/benchmarks/bench_lists.h"
#include "cli/benchmarks/bench_machine.h"
#include "cli/benchmarks/child_server.h"
#include "cli/options/flag_errors.h"
#include "plan/text_table.h"

namespace nibble {
namespace {

constexpr Option kOptions[] = {
    {"rounds", "N", "5", "starts, whose spread is shown"},
    {"serve-flags", "WORDS", "", "flags of `nibble serve`, with blanks between them"},
    {"random-input-len", "N", "16", "tokens of the prompt whose first token is waited for"},
    {"random-ids", "FIRST:LAST", "300:1900", "token ids of the prompt, the last one left out"},
    {"limit", "SECONDS", "900", "a start that takes longer has failed"},
    {"json", "FILE", "", "write machine and every start as JSON"},
};

struct Request {
  int32_t rounds = 5;
  double limit_seconds = 900.0;
  WorkloadPlan workload;
  std::vector<std::string> words;  // the command line of serve, without the folder
};

Result<Request> read_request(const Arguments& arguments) {
  FlagErrors errors;
  Request request;
  request.rounds = static_cast<int32_t>(errors.take(arguments.integer("rounds", 1, 1000)));
  request.limit_seconds = errors.take(arguments.number("limit", 1.0, 86400.0));
  request.workload.input_tokens = errors.take(arguments.integer("random-input-len", 1, 1 << 22));
  request.workload.output_tokens = 1;
  const auto ids = errors.take(read_id_range(*arguments.text("random-ids")));
  request.workload.id_first = ids.first;
  request.workload.id_last = ids.second;
  const std::string flags = arguments.text("serve-flags").value_or("");
  for (const std::string_view word : words_between(flags, ' '))
    if (!word.empty()) request.words.emplace_back(word);
  for (const std::string& word : request.words)
    if (word == "--port" || word.starts_with("--port="))
      errors.add(
          make_error(ErrorCode::invalid_argument, {.what = "--serve-flags",
                                                   .expected = "no --port, as a free one is chosen",
                                                   .found = word}));
  TRY(errors.result());
  return request;
}

struct Start {
  double ready_seconds = 0.0;
  double first_token_seconds = 0.0;  // from the start of the process too
};

Result<Start> start_once(const Request& request, const std::string& folder, int32_t round) {
  std::vector<std::string> words = {"serve", folder, "--port", "0"};
  words.insert(words.end(), request.words.begin(), request.words.end());
  ChildServer server = TRY(ChildServer::start(words, request.limit_seconds, interrupted));
  LoadTarget target;
  target.url = TRY(parse_http_url(server.url()));
  target.silence_seconds = request.limit_seconds;
  WorkloadPlan plan = request.workload;
  plan.seed = static_cast<uint64_t>(round);
  const auto asked = std::chrono::steady_clock::now();
  plan.model = TRY(first_model(target));
  const std::chrono::duration<double> naming = std::chrono::steady_clock::now() - asked;
  const RunRecord run = TRY(run_load(target, Workload(plan),
                                     {.pace = {.clients = 1, .tasks = 1},
                                      .outliers = {},
                                      .interrupted = interrupted,
                                      .progress = {}}));
  const RequestRecord& answer = run.requests.at(0);
  if (answer.outcome == RequestOutcome::stopped) return Error{ErrorCode::cancelled, "interrupted"};
  if (!answer.counts())
    return make_error(ErrorCode::io, {.what = "the first request", .found = answer.error});
  TRY(server.stop());
  return Start{.ready_seconds = server.ready_seconds(),
               .first_token_seconds = server.ready_seconds() + naming.count() + answer.ttft()};
}

std::string spread_text(const Spread& spread) {
  constexpr int kDigits = 3;
  return concat(fixed_text(spread.median, kDigits), " s (", fixed_text(spread.least, kDigits), "-",
                fixed_text(spread.most, kDigits), ")");
}

Json json_of(const std::vector<Start>& starts) {
  Json::Array list;
  for (const Start& start : starts)
    list.push_back(json_object({{"ready_seconds", Json(start.ready_seconds)},
                                {"first_token_seconds", Json(start.first_token_seconds)}}));
  return json_object({{"machine", Json(bench_machine())}, {"starts", Json(std::move(list))}});
}

Result<int> run(const Arguments& arguments, Terminal& terminal) {
  const Request request = TRY(read_request(arguments));
  install_interrupt_flag();
  std::vector<Start> starts;
  for (int32_t round = 0; round < request.rounds && !interrupted(); ++round) {
    const auto start = start_once(request, arguments.positional(0), round);
    if (!start.ok() && start.error().code == ErrorCode::cancelled) break;
    starts.push_back(TRY(start));
    terminal.err(concat("start ", round + 1, " of ", request.rounds, ": ready after ",
                        fixed_text(starts.back().ready_seconds, 3), " s\n"));
  }
  if (starts.empty()) return kExitInterrupted;
  std::vector<double> ready, first_token;
  for (const Start& start : starts) {
    ready.push_back(start.ready_seconds);
    first_token.push_back(start.first_token_seconds);
  }
  TRY(terminal.out(markdown_table(
      {{concat(starts.size(), starts.size() == 1 ? " start" : " starts"), "median (least-most)"},
       {"start of the process to ready", spread_text(spread_of(ready))},
       {"start of the process to the first token", spread_text(spread_of(first_token))}})));
  if (const auto path = arguments.text("json"))
    TRY(write_file_atomically(*path, json_of(starts).dump_pretty()));
  return interrupted() ? kExitInterrupted : kExitOk;
}

Result<void> check(const Arguments& arguments) {
  TRY(read_request(arguments));
  return {};
}

}  // namespace

const Verb kBenchStartupVerb = {
    .name = "bench startup",
    .positionals = "DIR",
    .summary = "Time from process start to ready and to the first token",
    .options = kOptions,
    .run = run,
    .check = check};

}  // namespace nibble
