// Member by member as vllm/benchmarks/serve.py of vLLM 0.32 writes them.
#include "bench/vllm_result.h"

#include <algorithm>
#include <cmath>

namespace nibble {

namespace {

Json number_or_inf(double value) { return std::isinf(value) ? Json("inf") : Json(value); }

/// "99" or "99.9", as vLLM spells it in keys.
std::string percent_word(double percent) {
  if (percent == std::floor(percent)) return concat(static_cast<int64_t>(percent));
  std::string word;
  append_json_double(word, percent);
  return word;
}

void add_latency(Json& result, std::string_view name, const Summary& summary) {
  result.set(concat("mean_", name, "_ms"), Json(summary.mean));
  result.set(concat("median_", name, "_ms"), Json(summary.median));
  result.set(concat("std_", name, "_ms"), Json(summary.deviation));
  for (const Percentile& each : summary.percentiles)
    result.set(concat("p", percent_word(each.percent), "_", name, "_ms"), Json(each.value));
}

/// One value for each request of the load, as they ended.
template <typename Value>
Json for_each_request(const RunRecord& run, Value value) {
  Json::Array all;
  for (const RequestRecord& each : run.requests)
    if (each.kind == RequestKind::load) all.push_back(value(each));
  return Json(std::move(all));
}

Json gaps_of(const RequestRecord& request) {
  Json::Array gaps;
  if (request.counts())
    for (size_t i = 1; i < request.token_times.size(); ++i)
      gaps.push_back(Json(request.token_times[i] - request.token_times[i - 1]));
  return Json(std::move(gaps));
}

std::string error_of(const RequestRecord& request) {
  if (request.outcome == RequestOutcome::complete) return {};
  return concat(outcome_name(request.outcome), request.error.empty() ? "" : ": ", request.error);
}

void add_details(Json& result, const RunRecord& run) {
  const auto counted = [](const RequestRecord& each, double value) {
    return Json(each.counts() ? value : 0.0);
  };
  result.set("input_lens", for_each_request(run, [](const RequestRecord& each) {
               return Json(each.counts() ? each.usage.prompt_tokens : 0);
             }));
  result.set("output_lens", for_each_request(run, [](const RequestRecord& each) {
               return Json(each.counts() ? each.usage.completion_tokens : 0);
             }));
  result.set("ttfts", for_each_request(run, [&](const RequestRecord& each) {
               return counted(each, each.counts() ? each.ttft() : 0.0);
             }));
  result.set("itls", for_each_request(run, gaps_of));
  result.set("latencies", for_each_request(run, [&](const RequestRecord& each) {
               return counted(each, each.counts() ? each.e2el() : 0.0);
             }));
  result.set("start_times",
             for_each_request(run, [](const RequestRecord& each) { return Json(each.sent); }));
  result.set("queue_times", for_each_request(run, [](const RequestRecord& each) {
               return Json(std::max(0.0, each.sent - each.due));
             }));
  result.set("generated_texts",
             for_each_request(run, [](const RequestRecord&) { return Json(""); }));
  result.set("errors",
             for_each_request(run, [](const RequestRecord& each) { return Json(error_of(each)); }));
}

void add_own(Json& result, const LoadMetrics& metrics) {
  result.set("stopped", Json(metrics.stopped));
  result.set("short_answers", Json(metrics.short_answers));
  result.set("total_cached_tokens", Json(metrics.cached_tokens));
  const auto or_null = [](const std::optional<double>& value) {
    return value ? Json(*value) : Json();
  };
  result.set("busy_output_throughput", or_null(metrics.busy_per_second));
  result.set("output_throughput_with_stopped", or_null(metrics.output_with_stopped));
  result.set("total_token_throughput_with_stopped", or_null(metrics.total_with_stopped));
  result.set("late_share", Json(metrics.late_share));
  result.set("late_ms_most", Json(metrics.late_ms_most));
  result.set("client_cpu_share", Json(metrics.cpu_share));
  result.set("invalid", metrics.invalid.empty() ? Json() : Json(metrics.invalid));
  Json::Array outliers;
  for (const OutlierResult& each : metrics.outliers)
    outliers.push_back(json_object({{"input_tokens", Json(each.input_tokens)},
                                    {"ttft_ms", each.ttft_ms ? Json(*each.ttft_ms) : Json()},
                                    {"error", Json(each.error)}}));
  result.set("outliers", Json(std::move(outliers)));
}

}  // namespace

Json vllm_result(const VllmHead& head, const RunRecord& run, const LoadMetrics& metrics) {
  const char* backend = head.api == LoadApi::chat ? "openai-chat" : "openai";
  Json result = json_object({{"date", Json(head.date)},
                             {"endpoint_type", Json(backend)},
                             {"backend", Json(backend)},
                             {"label", Json(head.label)},
                             {"model_id", Json(head.model)},
                             {"tokenizer_id", Json(head.model)},
                             {"num_prompts", Json(metrics.completed + metrics.failed)},
                             {"request_rate", number_or_inf(head.request_rate)},
                             {"burstiness", number_or_inf(head.burstiness)}});
  result.set("max_concurrency", head.clients > 0 ? Json(head.clients) : Json());
  result.set("duration", Json(metrics.seconds));
  result.set("completed", Json(metrics.completed));
  result.set("failed", Json(metrics.failed));
  result.set("total_input_tokens", Json(metrics.input_tokens));
  result.set("total_output_tokens", Json(metrics.output_tokens));
  result.set("request_throughput", Json(metrics.requests_per_second));
  result.set("request_goodput", head.goodput.asked() ? Json(metrics.good_per_second) : Json());
  result.set("output_throughput", Json(metrics.output_per_second));
  result.set("total_token_throughput", Json(metrics.total_per_second));
  add_details(result, run);
  result.set("max_output_tokens_per_s", Json(metrics.peak_output_per_second));
  result.set("max_concurrent_requests", Json(metrics.peak_requests));
  result.set("rtfx", Json(0.0));
  add_latency(result, "ttft", metrics.ttft_ms);
  add_latency(result, "tpot", metrics.tpot_ms);
  add_latency(result, "itl", metrics.itl_ms);
  add_latency(result, "e2el", metrics.e2el_ms);
  add_own(result, metrics);
  return result;
}

}  // namespace nibble
