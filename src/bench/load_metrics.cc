// Records into figures. The definitions are those of `vllm bench serve`, so that both can be
// compared; what vLLM does not have is said in the header.
#include "bench/load_metrics.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace nibble {

namespace {

constexpr double kMs = 1e3;

using Requests = std::vector<const RequestRecord*>;

Requests counted(const RunRecord& run) {
  Requests chosen;
  for (const RequestRecord& each : run.requests)
    if (each.counts()) chosen.push_back(&each);
  return chosen;
}

bool is_good(const RequestRecord& request, const Goodput& goodput) {
  const auto keeps = [](const std::optional<double>& bound, double seconds) {
    return !bound || seconds * kMs <= *bound;
  };
  return keeps(goodput.ttft_ms, request.ttft()) && keeps(goodput.tpot_ms, request.tpot()) &&
         keeps(goodput.e2el_ms, request.e2el());
}

void add_latencies(const Requests& requests, const MetricsPlan& plan, LoadMetrics& metrics) {
  std::vector<double> ttft, tpot, itl, e2el;
  for (const RequestRecord* each : requests) {
    ttft.push_back(each->ttft() * kMs);
    e2el.push_back(each->e2el() * kMs);
    if (each->usage.completion_tokens > 1) tpot.push_back(each->tpot() * kMs);
    for (size_t i = 1; i < each->token_times.size(); ++i)
      itl.push_back((each->token_times[i] - each->token_times[i - 1]) * kMs);
  }
  metrics.ttft_ms = summarize(std::move(ttft), plan.percents);
  metrics.tpot_ms = summarize(std::move(tpot), plan.percents);
  metrics.itl_ms = summarize(std::move(itl), plan.percents);
  metrics.e2el_ms = summarize(std::move(e2el), plan.percents);
}

/// vLLM's peaks: seconds since the first request that is complete was sent.
void add_peaks(const Requests& requests, LoadMetrics& metrics) {
  if (requests.empty()) return;
  double begin = requests.front()->sent;
  double end = 0.0;
  for (const RequestRecord* each : requests) {
    begin = std::min(begin, each->sent);
    end = std::max(end, each->token_times.back());
  }
  const auto seconds = static_cast<size_t>(std::ceil(end - begin)) + 1;
  std::vector<double> events(seconds, 0.0);
  std::vector<int64_t> running(seconds, 0);
  for (const RequestRecord* each : requests) {
    for (const double time : each->token_times) events[static_cast<size_t>(time - begin)] += 1.0;
    const auto last = static_cast<size_t>(each->token_times.back() - begin);
    for (auto at = static_cast<size_t>(each->sent - begin); at <= last; ++at) ++running[at];
  }
  metrics.peak_output_per_second = *std::ranges::max_element(events);
  metrics.peak_requests = *std::ranges::max_element(running);
}

/// Tokens of each event: the answer's by its usage, evenly.
double tokens_per_event(const RequestRecord& request) {
  return static_cast<double>(request.usage.completion_tokens) /
         static_cast<double>(request.token_times.size());
}

void add_timeline(const Requests& requests, LoadMetrics& metrics) {
  constexpr double kSecondsMost = 86400.0;
  const double length = std::clamp(std::ceil(metrics.seconds), 1.0, kSecondsMost);
  metrics.output_by_second.assign(static_cast<size_t>(length), 0.0);
  for (const RequestRecord* each : requests)
    for (const double time : each->token_times)
      if (time < length)
        metrics.output_by_second[static_cast<size_t>(time)] += tokens_per_event(*each);
}

/// The span in which every client of a closed loop generates, if there is one.
std::optional<std::pair<double, double>> busy_span(const RunRecord& run) {
  if (run.clients == 0 || run.requests_per_client == 0) return std::nullopt;
  double begin = 0.0;
  int32_t first_requests = 0;
  std::vector<double> ends;
  for (const RequestRecord& each : run.requests) {
    if (each.kind != RequestKind::load) continue;
    if (!each.counts() || each.turn > 0) return std::nullopt;
    ends.push_back(each.token_times.back());
    if (each.task < run.clients) {
      ++first_requests;
      begin = std::max(begin, each.token_times.front());
    }
  }
  if (first_requests < run.clients) return std::nullopt;
  // Clients share one queue, so the first to find it empty is that of the first of the last ends.
  std::ranges::sort(ends);
  const double end = ends[ends.size() - static_cast<size_t>(run.clients)];
  if (end <= begin) return std::nullopt;
  return std::pair(begin, end);
}

void add_busy_rate(const RunRecord& run, const Requests& requests, LoadMetrics& metrics) {
  const auto span = busy_span(run);
  if (!span) return;
  double tokens = 0.0;
  for (const RequestRecord* each : requests)
    for (const double time : each->token_times)
      if (time > span->first && time <= span->second) tokens += tokens_per_event(*each);
  metrics.busy_per_second = tokens / (span->second - span->first);
}

void add_ends(const RunRecord& run, LoadMetrics& metrics) {
  for (const RequestRecord& each : run.requests) {
    if (each.kind == RequestKind::outlier) {
      OutlierResult result{.input_tokens = each.planned_input, .error = each.error};
      if (each.outcome == RequestOutcome::complete) result.ttft_ms = each.ttft() * kMs;
      metrics.outliers.push_back(std::move(result));
    } else if (each.outcome == RequestOutcome::stopped) {
      ++metrics.stopped;
    } else if (each.counts()) {
      ++metrics.completed;
      if (each.usage.completion_tokens < each.planned_output) ++metrics.short_answers;
    }
    if (!each.is_error()) continue;
    ++metrics.failed;
    ++metrics.errors[concat(outcome_name(each.outcome), ": ", each.error)];
  }
}

void add_client(const RunRecord& run, const MetricsPlan& plan, LoadMetrics& metrics) {
  int64_t late = 0;
  for (const RequestRecord& each : run.requests) {
    const double seconds = each.sent - each.due;
    metrics.late_ms_most = std::max(metrics.late_ms_most, seconds * kMs);
    if (seconds > plan.late_seconds) ++late;
  }
  if (run.requests.empty()) return;
  metrics.late_share = static_cast<double>(late) / static_cast<double>(run.requests.size());
  if (metrics.late_share > plan.late_share_max)
    metrics.invalid = concat("the client itself was late with ", late, " of ", run.requests.size(),
                             " requests: give it more of the processor, or another machine");
  else if (metrics.completed == 0)
    metrics.invalid = "no request was answered";
}

/// A prompt counts once its first token came.
void add_stopped(const RunRecord& run, LoadMetrics& metrics) {
  if (metrics.stopped == 0 || run.seconds <= 0.0) return;
  int64_t output = metrics.output_tokens;
  int64_t input = metrics.input_tokens;
  for (const RequestRecord& each : run.requests) {
    if (each.outcome != RequestOutcome::stopped || each.kind != RequestKind::load) continue;
    output += each.usage.completion_tokens;
    if (!each.token_times.empty()) input += each.usage.prompt_tokens;
  }
  metrics.output_with_stopped = static_cast<double>(output) / run.seconds;
  metrics.total_with_stopped = static_cast<double>(input + output) / run.seconds;
}

}  // namespace

std::string_view outcome_name(RequestOutcome outcome) {
  constexpr std::string_view kNames[] = {"complete", "refused",   "cut",    "failed",
                                         "timeout",  "uncounted", "stopped"};
  return kNames[static_cast<size_t>(outcome)];
}

Result<Goodput> parse_goodput(std::string_view text) {
  const auto wrong = [&] {
    return make_error(ErrorCode::invalid_argument,
                      {.what = "--goodput",
                       .expected = "ttft:MS, tpot:MS or e2el:MS, each once, MS from 0 to 1e9",
                       .found = concat("\"", text.substr(0, 200), "\"")});
  };
  Goodput goodput;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find_first_of(", ", at), text.size());
    const std::string_view part = text.substr(at, end - at);
    at = end + 1;
    const size_t colon = part.find(':');
    const std::string_view name = part.substr(0, colon);
    std::optional<double>* bound = name == "ttft"   ? &goodput.ttft_ms
                                   : name == "tpot" ? &goodput.tpot_ms
                                   : name == "e2el" ? &goodput.e2el_ms
                                                    : nullptr;
    if (colon == part.npos || bound == nullptr || *bound) return wrong();
    const std::string_view number = part.substr(colon + 1);
    double value = 0.0;
    const auto read = std::from_chars(number.data(), number.data() + number.size(), value);
    constexpr double kMost = 1e9;
    if (read.ec != std::errc() || read.ptr != number.data() + number.size() || !(value >= 0.0) ||
        value > kMost)
      return wrong();
    *bound = value;
  }
  return goodput;
}

LoadMetrics measure(const RunRecord& run, const MetricsPlan& plan) {
  LoadMetrics metrics{.seconds = run.seconds};
  const Requests requests = counted(run);
  add_ends(run, metrics);
  int64_t good = 0;
  for (const RequestRecord* each : requests) {
    metrics.input_tokens += each->usage.prompt_tokens;
    metrics.output_tokens += each->usage.completion_tokens;
    metrics.cached_tokens += each->usage.cached_tokens;
    good += is_good(*each, plan.goodput) ? 1 : 0;
  }
  if (run.seconds > 0.0) {
    const auto rate = [&](int64_t count) { return static_cast<double>(count) / run.seconds; };
    metrics.requests_per_second = rate(metrics.completed);
    metrics.good_per_second = rate(good);
    metrics.output_per_second = rate(metrics.output_tokens);
    metrics.total_per_second = rate(metrics.input_tokens + metrics.output_tokens);
    metrics.cpu_share = run.cpu_seconds / run.seconds;
  }
  add_stopped(run, metrics);
  add_latencies(requests, plan, metrics);
  add_peaks(requests, metrics);
  add_timeline(requests, metrics);
  add_busy_rate(run, requests, metrics);
  add_client(run, plan, metrics);
  return metrics;
}

}  // namespace nibble
