// The option table of `nibble bench serve`, its presets, and the limits of each number.
#include "cli/benchmarks/bench_load_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "cli/benchmarks/bench_lists.h"
#include "cli/options/flag_errors.h"
#include "plan/text_table.h"

namespace nibble {
namespace {

constexpr int64_t kClientsMax = 4096;
constexpr int64_t kTasksMax = 1'000'000;
constexpr int64_t kTokensMax = 4 << 20;      // tokens of a prompt or an answer, at most
constexpr int64_t kEventsMax = 100'000'000;  // events of a round, at most, as each is kept
constexpr size_t kLevelsMax = 64;
constexpr double kSecondsMax = 86400.0;

constexpr auto kOptions = std::to_array<Option>({
    {"preset", "NAME", "",
     "published loads: saturation (15,000 in, 1,500 out, 30 to 64 clients) or production (30,000 "
     "in, 2,000 out, 25 clients); other flags change what they say"},
    {"against", "URL", "", "a second server: rounds of both in turn, and the ratio"},
    {"model", "NAME", "", "the name to ask for; default: the first that the server lists"},
    {"api-key", "KEY", "", "the key that the servers want", "", OptionForm::plain},
    {"api", "NAME", "completions", "chat or completions"},
    {"concurrency", "N[,N...]", "",
     "closed loop: so many clients, each with one request after another; default: 1",
     "max-concurrency"},
    {"request-rate", "R[,R...]", "",
     "open loop: requests arrive so often a second, whatever the server does; inf: all at once"},
    {"burstiness", "X", "1",
     "with --request-rate: 1 is a Poisson process, less comes in bursts, inf is even"},
    {"num-prompts", "N", "",
     "requests (conversations) of a round; default: 4 for each client, or 100 of an open loop"},
    {"duration", "SECONDS", "",
     "closed loop: go on so long, and until --num-prompts are complete, then stop the rest"},
    {"rounds", "N", "3", "rounds of each load, whose spread is shown; each has prompts of its own"},
    {"num-warmups", "N", "",
     "requests before each load that count for nothing; default: one for "
     "each client, at most 8"},
    {"random-input-len", "N", "1024", "tokens of each prompt, or of each turn's new message"},
    {"random-output-len", "N", "128", "tokens of each answer"},
    {"random-range-ratio", "R", "0", "lengths are spread evenly over (1 - R) to (1 + R) of these"},
    {"random-prefix-len", "N", "0", "tokens that all prompts of a round begin with"},
    {"prompt", "FORM", "ids",
     "completions: ids sends token ids, so lengths are exact; words sends text"},
    {"random-ids", "FIRST:LAST", "300:1900", "token ids of prompts, the last one left out"},
    {"turns", "N", "1", "conversations of so many turns, each with all that was said; needs chat"},
    {"turn-pause", "SECONDS", "0", "between an answer and the next turn, as a tool would take"},
    {"outliers", "N[,N...]", "",
     "prompts of so many tokens, one after another beside the load, reported apart"},
    {"outlier-after", "SECONDS", "5", "when the first of them is sent"},
    {"extra-body", "JSON", "", "members of every request, such as {\"temperature\": 0}"},
    {"ignore-eos", "", "true", "ask for answers of the full length"},
    {"goodput", "BOUNDS", "", "count requests within ttft:MS, tpot:MS and e2el:MS", "",
     OptionForm::several},
    {"metric-percentiles", "P[,P...]", "50,90,95,99", "of each latency"},
    {"seed", "N", "0", "of prompts, lengths and arrivals"},
    {"late-ms", "MS", "10",
     "a request sent later than this is late; a round with more than 5 % of them is invalid"},
    {"timeout", "SECONDS", "600", "a request without a byte for so long has failed"},
    {"price", "PER_HOUR", "", "of the server, for tokens per unit of currency"},
    {"currency", "NAME", "EUR", "of --price"},
    {"json", "FILE", "", "write everything as JSON, each run with vLLM's keys"},
    {"result-dir", "DIR", "",
     "write each run as `vllm bench serve --save-result` does, and summary.json for its plots"},
    {"markdown", "FILE", "", "write the report as Markdown"},
    {"html", "FILE", "", "write the report as one page with charts"},
});

struct Preset {
  std::string_view name;
  std::string_view concurrency;
  int64_t input_tokens;
  int64_t output_tokens;
};
constexpr Preset kPresets[] = {{"saturation", "30,40,50,60,64", 15000, 1500},
                               {"production", "25", 30000, 2000}};

Error bad_value(const Arguments& arguments, std::string_view name, std::string_view expected) {
  return make_error(ErrorCode::invalid_argument,
                    {.what = concat("--", name),
                     .expected = expected,
                     .found = concat("\"", arguments.text(name).value_or(""), "\"")});
}

struct Range {
  double least = 0.0;
  double most = 0.0;
};

/// A list of numbers; "inf" where the range has no end.
Result<std::vector<double>> read_list(const Arguments& arguments, std::string_view name,
                                      const std::string& text, Range range) {
  std::vector<double> values;
  for (const std::string_view word : words_between(text, ',')) {
    double value = 0.0;
    const auto end = std::from_chars(word.data(), word.data() + word.size(), value);
    const bool whole = end.ec == std::errc() && end.ptr == word.data() + word.size();
    if (!whole || !(value >= range.least && value <= range.most) || values.size() == kLevelsMax)
      return bad_value(arguments, name,
                       concat("at most ", kLevelsMax, " numbers from ", range.least, " to ",
                              range.most, " with commas"));
    values.push_back(value);
  }
  return values;
}

Result<std::optional<Preset>> read_preset(const Arguments& arguments) {
  if (!arguments.given("preset")) return std::optional<Preset>();
  for (const Preset& preset : kPresets)
    if (preset.name == *arguments.text("preset")) return std::optional(preset);
  return bad_value(arguments, "preset", "saturation or production");
}

Result<std::vector<LoadLevel>> read_levels(const Arguments& arguments,
                                           const std::optional<Preset>& preset) {
  std::vector<LoadLevel> levels;
  if (arguments.given("concurrency") && arguments.given("request-rate"))
    return make_error(ErrorCode::invalid_argument,
                      {.what = "--concurrency and --request-rate",
                       .expected = "one of them: a closed loop or an open one",
                       .found = "both"});
  if (arguments.given("request-rate")) {
    constexpr Range kRates = {1e-4, std::numeric_limits<double>::infinity()};
    for (const double rate :
         TRY(read_list(arguments, "request-rate", *arguments.text("request-rate"), kRates)))
      levels.push_back({.rate = rate});
    return levels;
  }
  const std::string fallback(preset ? preset->concurrency : "1");
  for (const int64_t clients : TRY(read_counts(
           "concurrency", arguments.text("concurrency").value_or(fallback), {1, kClientsMax})))
    levels.push_back({.clients = static_cast<int32_t>(clients)});
  return levels;
}

Result<LoadTarget> read_target(const Arguments& arguments, const std::string& url) {
  LoadTarget target;
  target.url = TRY(parse_http_url(url.find("://") == std::string::npos ? "http://" + url : url));
  target.api_key = arguments.text("api-key").value_or("");
  if (std::ranges::any_of(target.api_key, [](char c) { return c <= ' ' || c == 127; }))
    return make_error(ErrorCode::invalid_argument,
                      {.what = "--api-key", .expected = "no blanks or control characters"});
  target.silence_seconds = TRY(arguments.number("timeout", 0.1, kSecondsMax));
  return target;
}

Result<Json> read_extra(const Arguments& arguments) {
  if (!arguments.given("extra-body")) return Json();
  auto json = parse_json(*arguments.text("extra-body"), "--extra-body");
  if (!json.ok() || !json.value().is_object())
    return bad_value(arguments, "extra-body", "a JSON object");
  return json;
}

Result<double> read_burstiness(const Arguments& arguments) {
  if (arguments.text("burstiness") == "inf") return std::numeric_limits<double>::infinity();
  return arguments.number("burstiness", 0.01, 1e6);
}

void read_workload(const Arguments& arguments, const std::optional<Preset>& preset,
                   FlagErrors& errors, WorkloadPlan& plan) {
  const auto api = errors.take(arguments.choice("api", {"chat", "completions"}));
  plan.api = api == "chat" ? LoadApi::chat : LoadApi::completions;
  const auto form = errors.take(arguments.choice("prompt", {"ids", "words"}));
  plan.form = form == "words" || api == "chat" ? PromptForm::words : PromptForm::ids;
  const auto length = [&](std::string_view name, int64_t of_preset, int64_t least) {
    const int64_t value = errors.take(arguments.integer(name, least, kTokensMax));
    return preset && of_preset > 0 && !arguments.given(name) ? of_preset : value;
  };
  plan.input_tokens = length("random-input-len", preset ? preset->input_tokens : 0, 1);
  plan.output_tokens = length("random-output-len", preset ? preset->output_tokens : 0, 1);
  plan.prefix_tokens = length("random-prefix-len", 0, 0);
  plan.range_ratio = errors.take(arguments.number("random-range-ratio", 0.0, 0.999));
  const auto ids = errors.take(read_id_range(*arguments.text("random-ids")));
  plan.id_first = ids.first;
  plan.id_last = ids.second;
  plan.extra = errors.take(read_extra(arguments));
  plan.ignore_eos = arguments.enabled("ignore-eos");
  plan.seed = static_cast<uint64_t>(errors.take(arguments.integer("seed", 0, INT64_MAX)));
}

void read_metrics(const Arguments& arguments, FlagErrors& errors, MetricsPlan& plan) {
  if (arguments.given("goodput"))
    plan.goodput = errors.take(parse_goodput(*arguments.text("goodput")));
  plan.percents = errors.take(read_list(arguments, "metric-percentiles",
                                        *arguments.text("metric-percentiles"), {0.0, 100.0}));
  constexpr double kMs = 1e-3;
  plan.late_seconds = errors.take(arguments.number("late-ms", 0.0, 60000.0)) * kMs;
}

void read_pace(const Arguments& arguments, FlagErrors& errors, LoadOptions& options) {
  if (arguments.given("num-prompts"))
    options.tasks_given = errors.take(arguments.integer("num-prompts", 1, kTasksMax));
  if (arguments.given("duration"))
    options.seconds = errors.take(arguments.number("duration", 0.1, kSecondsMax));
  if (options.seconds > 0.0 && arguments.given("request-rate"))
    errors.add(make_error(ErrorCode::invalid_argument,
                          {.what = "--duration",
                           .expected = "a closed loop",
                           .found = "--request-rate",
                           .advice = "an open loop ends after --num-prompts"}));
  options.burstiness = errors.take(read_burstiness(arguments));
  options.turns = static_cast<int32_t>(errors.take(arguments.integer("turns", 1, 1000)));
  if (options.turns > 1 && options.workload.api != LoadApi::chat)
    errors.add(bad_value(arguments, "turns", "1, or --api chat"));
  options.pause_seconds = errors.take(arguments.number("turn-pause", 0.0, kSecondsMax));
  if (arguments.given("outliers"))
    options.outliers.input_tokens =
        errors.take(read_counts("outliers", *arguments.text("outliers"), {1, kTokensMax}));
  options.outliers.after_seconds = errors.take(arguments.number("outlier-after", 0.0, kSecondsMax));
  options.rounds = static_cast<int32_t>(errors.take(arguments.integer("rounds", 1, 1000)));
  if (arguments.given("num-warmups"))
    options.warmups = errors.take(arguments.integer("num-warmups", 0, kTasksMax));
}

Result<void> check_size(const LoadOptions& options) {
  for (const LoadLevel& level : options.levels) {
    const auto events = static_cast<double>(options.tasks(level)) * options.turns *
                        static_cast<double>(options.workload.output_tokens);
    if (events > static_cast<double>(kEventsMax))
      return make_error(ErrorCode::invalid_argument,
                        {.what = "the answers of a round",
                         .expected = concat("at most ", kEventsMax, " tokens"),
                         .found = fixed_text(events, 0),
                         .advice = "lower --num-prompts, --turns or --random-output-len"});
  }
  return {};
}

}  // namespace

std::span<const Option> bench_serve_options() { return kOptions; }

std::string LoadLevel::name() const {
  if (clients > 0) return concat(clients, clients == 1 ? " client" : " clients");
  if (std::isinf(rate)) return "all requests at once";
  std::string text;
  append_json_double(text, rate);
  return concat(text, " requests/s");
}

int64_t LoadOptions::tasks(const LoadLevel& level) const {
  constexpr int64_t kPerClient = 4;
  constexpr int64_t kOpen = 100;
  if (tasks_given > 0) return tasks_given;
  if (seconds > 0.0) return level.clients;
  return level.clients > 0 ? kPerClient * level.clients : kOpen;
}

Result<LoadOptions> read_load_options(const Arguments& arguments) {
  FlagErrors errors;
  LoadOptions options;
  const auto preset = errors.take(read_preset(arguments));
  if (arguments.positional_count() > 0)
    options.first = errors.take(read_target(arguments, arguments.positional(0)));
  if (arguments.given("against"))
    options.second = errors.take(read_target(arguments, *arguments.text("against")));
  options.model = arguments.text("model").value_or("");
  options.levels = errors.take(read_levels(arguments, preset));
  read_workload(arguments, preset, errors, options.workload);
  read_pace(arguments, errors, options);
  read_metrics(arguments, errors, options.metrics);
  if (arguments.given("price"))
    options.price_per_hour = errors.take(arguments.number("price", 1e-6, 1e6));
  options.currency = *arguments.text("currency");
  errors.add(check_size(options));
  TRY(errors.result());
  return options;
}

std::vector<Json::Member> load_settings(const LoadOptions& options) {
  const WorkloadPlan& plan = options.workload;
  std::vector<Json::Member> settings = {
      {"API", Json(plan.api == LoadApi::chat ? "chat" : "completions")},
      {"input tokens", Json(plan.input_tokens)},
      {"output tokens", Json(plan.output_tokens)},
      {"rounds", Json(options.rounds)},
      {"seed", Json(static_cast<int64_t>(plan.seed))}};
  const auto add = [&](const char* name, Json value) {
    settings.push_back({name, std::move(value)});
  };
  if (plan.range_ratio > 0.0) add("range ratio", Json(plan.range_ratio));
  if (plan.prefix_tokens > 0) add("shared prefix", Json(plan.prefix_tokens));
  if (options.turns > 1) add("turns", Json(options.turns));
  if (options.pause_seconds > 0.0) add("pause between turns, s", Json(options.pause_seconds));
  if (options.seconds > 0.0) add("seconds", Json(options.seconds));
  if (options.levels.front().clients == 0)
    add("burstiness", std::isinf(options.burstiness) ? Json("inf") : Json(options.burstiness));
  if (plan.extra.is_object()) add("extra body", plan.extra);
  if (!plan.ignore_eos) add("ignore EOS", Json(false));
  return settings;
}

}  // namespace nibble
