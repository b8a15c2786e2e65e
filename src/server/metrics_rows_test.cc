// The rows of /metrics, each with a number of its own: none stands for another, sums are sums.
#include <gtest/gtest.h>

#include "server/metrics.h"

namespace nibble {
namespace {

struct Row {
  const char* name;  // with its labels behind the model's
  double value;
};

std::string row_of(std::string_view prefix, const Row& row) {
  const std::string_view name = row.name;
  const size_t labels = std::min(name.find('{'), name.size());
  const std::string more = labels == name.size() ? "}" : concat(",", name.substr(labels + 1));
  return concat("\n", prefix, name.substr(0, labels), "{model_name=\"m\"", more, " ",
                row.value == static_cast<double>(static_cast<int64_t>(row.value))
                    ? concat(static_cast<int64_t>(row.value))
                    : concat(row.value),
                "\n");
}

/// Those that vLLM has are there under its name too, the others are not.
void expect_rows(const std::string& text, std::initializer_list<Row> both,
                 std::initializer_list<Row> own) {
  const auto has = [&](std::string_view prefix, const Row& row) {
    return text.find(row_of(prefix, row)) != std::string::npos;
  };
  for (const Row& row : both) {
    EXPECT_TRUE(has("nibble_", row)) << row_of("nibble_", row) << text;
    EXPECT_TRUE(has("vllm:", row)) << row_of("vllm:", row) << text;
  }
  for (const Row& row : own) {
    EXPECT_TRUE(has("nibble_", row)) << row_of("nibble_", row) << text;
    EXPECT_FALSE(has("vllm:", row)) << row_of("vllm:", row) << text;
  }
}

TEST(MetricsRows, TellWhatTheEngineHolds) {
  EngineStats engine;
  engine.waiting = 3;
  engine.prefill = 4;
  engine.decode = 7;
  engine.swapped = 5;
  engine.pages = {.used = 21, .total = 84};
  engine.slots = {.used = 22, .total = 32};
  engine.host_pages = {.used = 23, .total = 33};
  engine.host_slots = {.used = 24, .total = 34};
  engine.first_token_ms = 2500.0;
  const std::string text = Metrics().text(engine, "m");
  expect_rows(
      text,
      {{"num_requests_running", 11}, {"num_requests_waiting", 3}, {"kv_cache_usage_perc", 0.25}},
      {{"num_requests_swapped", 5},
       {"pages_used", 21},
       {"pages_capacity", 84},
       {"state_slots_used", 22},
       {"state_slots_capacity", 32},
       {"host_pages_used", 23},
       {"host_pages_capacity", 33},
       {"host_state_slots_used", 24},
       {"host_state_slots_capacity", 34},
       {"first_token_predicted_seconds", 2.5}});
  EXPECT_EQ(text.find("host_weight_bytes{"), std::string::npos);  // no account of them is kept
}

TEST(MetricsRows, TellWhatTheEngineHasDone) {
  EngineStats engine;
  engine.engine.swaps_out = 30;
  engine.engine.recomputes = 12;
  engine.engine.passes = 43;
  engine.engine.not_finite = 44;
  engine.engine.draft_rounds = 45;
  engine.engine.drafted = 46;
  engine.engine.drafts_right = 47;
  engine.engine.right_at[0] = 48;
  engine.engine.right_at[15] = 49;
  engine.engine.drafted_by = {50, 51, 52};
  engine.engine.right_by = {53, 54, 55};
  engine.engine.drafts_refused = 56;
  engine.prefix.pages_evicted = 57;
  engine.prefix.pages_stored = 58;
  engine.prefix.pages_loaded = 59;
  engine.media.encoded = 60;
  engine.media.found = 61;
  engine.media.evicted = 62;
  engine.media.restored = 63;
  const std::string text =
      Metrics().text(engine, "m", {.images = 64, .videos = 65, .held_bytes = 66});
  expect_rows(text,
              {{"num_preemptions_total", 42},
               {"spec_decode_num_drafts_total", 45},
               {"spec_decode_num_draft_tokens_total", 46},
               {"spec_decode_num_accepted_tokens_total", 47},
               {"spec_decode_num_accepted_tokens_per_pos_total{position=\"0\"}", 48},
               {"spec_decode_num_accepted_tokens_per_pos_total{position=\"15\"}", 49}},
              {{"passes_total", 43},
               {"not_finite_total", 44},
               {"draft_tokens_total{proposer=\"text\"}", 50},
               {"draft_tokens_total{proposer=\"mtp\"}", 51},
               {"draft_tokens_total{proposer=\"grammar\"}", 52},
               {"accepted_draft_tokens_total{proposer=\"text\"}", 53},
               {"accepted_draft_tokens_total{proposer=\"mtp\"}", 54},
               {"accepted_draft_tokens_total{proposer=\"grammar\"}", 55},
               {"refused_draft_tokens_total", 56},
               {"prefix_pages_evicted_total", 57},
               {"prefix_pages_stored_total", 58},
               {"prefix_pages_loaded_total", 59},
               {"media_encoded_total", 60},
               {"media_found_total", 61},
               {"media_evicted_total", 62},
               {"media_restored_total", 63},
               {"images_prepared_total", 64},
               {"videos_prepared_total", 65},
               {"image_memory_bytes", 66}});
}

/// Two sequences that end, one that ends and says nothing, one that still runs.
TEST(MetricsRows, AddUpAllSequences) {
  Metrics metrics;
  const auto start = Metrics::Time::clock::now();
  const auto after = [&](int ms) { return start + std::chrono::milliseconds(ms); };
  const auto end = [](uint64_t id, FinishReason reason, int scale) {
    return Finished{.id = id,
                    .reason = reason,
                    .prompt_tokens = 10 * scale,
                    .completion_tokens = 3 * scale,
                    .cached_tokens = 4 * scale};
  };
  for (const uint64_t id : {1, 2, 3}) metrics.begin(id, start);
  metrics.begin(4, after(1000));
  metrics.take(NewTokens{.id = 1, .tokens = {1, 2, 3}, .logprobs = {}}, after(500));
  metrics.take(NewTokens{.id = 2, .tokens = {1}, .logprobs = {}}, after(250));
  metrics.take(NewTokens{.id = 2, .tokens = {1, 2}, .logprobs = {}}, after(750));
  metrics.take(NewTokens{.id = 2, .tokens = {1, 2, 3}, .logprobs = {}}, after(1500));
  metrics.take(NewTokens{.id = 4, .tokens = {1, 2}, .logprobs = {}}, after(1250));
  metrics.take(end(1, FinishReason::stop, 1), after(1000));
  metrics.take(end(2, FinishReason::stop, 2), after(2000));
  metrics.take(end(3, FinishReason::cancelled, 0), after(4000));
  metrics.ask("a");
  metrics.ask("a");
  metrics.ask("b");
  for (const int status : {400, 400, 429}) metrics.refuse(status);
  const Metrics::Tokens tokens = metrics.tokens();
  EXPECT_EQ(tokens.prompt, 30);
  EXPECT_EQ(tokens.cached, 12);
  EXPECT_EQ(tokens.generated, 3 + 6 + 2);
  const Metrics::Progress progress = metrics.progress(4, after(3000));
  EXPECT_EQ(progress.generated, 2);
  EXPECT_DOUBLE_EQ(progress.seconds, 2.0);
  const std::string text = metrics.text(EngineStats(), "m");
  expect_rows(text,
              {{"prompt_tokens_total", 30},
               {"prompt_tokens_cached_total", 12},
               {"generation_tokens_total", 9},
               {"prefix_cache_queries_total", 30},
               {"prefix_cache_hits_total", 12},
               {"request_success_total{finished_reason=\"stop\"}", 2},
               {"request_success_total{finished_reason=\"abort\"}", 1},
               {"time_to_first_token_seconds_count", 3},
               {"time_to_first_token_seconds_sum", 1},
               {"inter_token_latency_seconds_count", 5},
               {"inter_token_latency_seconds_sum", 1.25},
               {"inter_token_latency_seconds_bucket{le=\"0.25\"}", 5},
               {"e2e_request_latency_seconds_count", 3},
               {"e2e_request_latency_seconds_sum", 7},
               {"request_prompt_tokens_count", 3},
               {"request_prompt_tokens_sum", 30},
               {"request_prompt_tokens_bucket{le=\"10.0\"}", 2},
               {"request_prompt_tokens_bucket{le=\"20.0\"}", 3},
               {"request_prompt_tokens_bucket{le=\"+Inf\"}", 3},
               {"request_generation_tokens_sum", 9}},
              {{"requests_total{profile=\"a\"}", 2},
               {"requests_total{profile=\"b\"}", 1},
               {"requests_refused_total{status=\"400\"}", 2},
               {"requests_refused_total{status=\"429\"}", 1}});
}

TEST(MetricsRows, EveryWayToEndHasItsName) {
  const std::pair<FinishReason, const char*> kNames[] = {
      {FinishReason::stop, "stop"},         {FinishReason::length, "length"},
      {FinishReason::cancelled, "abort"},   {FinishReason::error, "error"},
      {FinishReason::deadline, "deadline"}, {FinishReason::repetition, "repetition"}};
  for (const auto& [reason, name] : kNames) {
    Metrics metrics;
    metrics.begin(1, {});
    metrics.take(Finished{.id = 1, .reason = reason}, {});
    const std::string row = concat("request_success_total{finished_reason=\"", name, "\"}");
    expect_rows(metrics.text(EngineStats(), "m"), {{row.c_str(), 1}}, {});
  }
}

}  // namespace
}  // namespace nibble
