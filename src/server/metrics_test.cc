// Histograms, names, labels; what a server counts.
#include "server/metrics.h"

#include <gtest/gtest.h>

#include "server/testing/test_server.h"

namespace nibble {
namespace {

using namespace testing;

TEST(Histogram, CountsUpToEachBound) {
  constexpr double kBounds[] = {1.0, 2.0, 4.0};
  Histogram histogram(kBounds);
  for (const double value : {0.5, 1.0, 3.0, 9.0}) histogram.add(value);
  histogram.add(2.0, 3);
  EXPECT_EQ(histogram.counts()[0], 2);
  EXPECT_EQ(histogram.counts()[1], 5);
  EXPECT_EQ(histogram.counts()[2], 6);
  EXPECT_EQ(histogram.count(), 7);
  EXPECT_DOUBLE_EQ(histogram.sum(), 19.5);
}

TEST(Metrics, TimesTokensFromSubmission) {
  Metrics metrics;
  const auto start = Metrics::Time::clock::now();
  const auto after = [&](int ms) { return start + std::chrono::milliseconds(ms); };
  metrics.begin(7, start);
  metrics.take(NewTokens{.id = 7, .tokens = {1}, .logprobs = {}}, after(40));
  metrics.take(NewTokens{.id = 7, .tokens = {1, 2}, .logprobs = {}}, after(240));  // drafts
  metrics.take(Finished{.id = 7,
                        .reason = FinishReason::length,
                        .prompt_tokens = 10,
                        .completion_tokens = 3,
                        .cached_tokens = 4},
               after(250));
  EXPECT_EQ(metrics.progress(7, after(260)).generated, 0);  // nothing is kept of what has ended
  metrics.take(NewTokens{.id = 9, .tokens = {1}, .logprobs = {}}, after(300));  // not ours
  metrics.refuse(400);
  EngineStats engine;
  engine.decode = 2;
  engine.pages = {.used = 1, .total = 4};
  engine.engine.draft_rounds = 6;
  engine.engine.right_at[1] = 3;
  engine.weights = {.copied = 598, .mapped = 4637};
  const std::string text = metrics.text(engine, "a b");
  for (const char* line :
       {"vllm:num_requests_running{model_name=\"a b\"} 2\n",
        "nibble_kv_cache_usage_perc{model_name=\"a b\"} 0.25\n",
        "nibble_host_weight_bytes{model_name=\"a b\",place=\"copied\"} 598\n",
        "nibble_host_weight_bytes{model_name=\"a b\",place=\"mapped\"} 4637\n",
        "vllm:time_to_first_token_seconds_bucket{model_name=\"a b\",le=\"0.025\"} 0\n",
        "vllm:time_to_first_token_seconds_bucket{model_name=\"a b\",le=\"0.05\"} 1\n",
        "vllm:inter_token_latency_seconds_count{model_name=\"a b\"} 2\n",
        "vllm:inter_token_latency_seconds_sum{model_name=\"a b\"} 0.2\n",
        "vllm:prompt_tokens_total{model_name=\"a b\"} 10\n",
        "vllm:spec_decode_num_drafts_total{model_name=\"a b\"} 6\n",
        "vllm:spec_decode_num_accepted_tokens_per_pos_total{model_name=\"a b\",position=\"1\"} 3\n",
        "vllm:prefix_cache_hits_total{model_name=\"a b\"} 4\n", "finished_reason=\"length\"} 1\n",
        "status=\"400\"} 1\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  const std::string_view looked_up = "vllm:prefix_cache_queries_total{model_name=\"a b\"} ";
  EXPECT_NE(text.find(concat(looked_up, "10\n")), std::string::npos);
  metrics.cache_is(CacheMode::off);
  EXPECT_NE(metrics.text(engine, "a b").find(concat(looked_up, "0\n")), std::string::npos);
  EXPECT_NE(metrics.text(engine, "\"").find(R"({model_name="\""})"), std::string::npos);
}

TEST(Metrics, AddUpTheCallsOfAllAnswers) {
  Metrics metrics;
  metrics.call({.complete = 2, .malformed = 1});
  metrics.call({.complete = 3, .malformed = 4});
  const std::string text = metrics.text(EngineStats(), "m");
  for (const char* sum : {"outcome=\"complete\"} 5\n", "outcome=\"malformed\"} 5\n"})
    EXPECT_NE(text.find(concat("nibble_tool_calls_total{model_name=\"m\",", sum)),
              std::string::npos)
        << text;
}

TEST_F(ServerTest, MetricsCountCallsThatAreNone) {
  const std::string call = "<tool_call>\n<function=f>\n</function>\n</tool_call>";
  start(concat("</think>\n\n", call, "\n<tool_call>\nf()\n</tool_call>\n", call));
  const Json answer = chat(R"(,"tools":[{"type":"function","function":{"name":"f"}}])");
  EXPECT_EQ(at(at(choice(answer), "message"), "tool_calls").as_array().size(), 2U);
  EXPECT_NE(at(at(choice(answer), "message"), "content").as_string().find("f()"),
            std::string::npos);
  wait_for_log("tool_calls");  // it is settled
  const std::string text = ask(get("/metrics")).second;
  EXPECT_NE(text.find("nibble_tool_calls_total{model_name=\"tiny\",outcome=\"complete\"} 2\n"),
            std::string::npos);
  EXPECT_NE(text.find("nibble_tool_calls_total{model_name=\"tiny\",outcome=\"malformed\"} 1\n"),
            std::string::npos);
}

TEST_F(ServerTest, MetricsCountRequests) {
  start("yes");
  EXPECT_EQ(ask(post(kCompletions, R"({"prompt":"p","max_tokens":5})")).first, 200);
  const auto instruct = R"({"model":"instruct","prompt":"p","max_tokens":5})";
  EXPECT_EQ(ask(post(kCompletions, instruct)).first, 200);
  EXPECT_EQ(ask(post(kCompletions, R"({"prompt":7})")).first, 400);
  EXPECT_EQ(ask(get("/nothing")).first, 404);
  const auto [status, text] = ask(get("/metrics"));
  EXPECT_EQ(status, 200);
  EXPECT_NE(text.find("vllm:generation_tokens_total{model_name=\"tiny\"} 8\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("nibble_requests_refused_total{model_name=\"tiny\",status=\"400\"} 1\n"),
            std::string::npos);
  EXPECT_NE(text.find("nibble_requests_refused_total{model_name=\"tiny\",status=\"404\"} 1\n"),
            std::string::npos);
  EXPECT_NE(text.find("nibble_requests_total{model_name=\"tiny\",profile=\"\"} 1\n"),
            std::string::npos);
  EXPECT_NE(text.find("nibble_requests_total{model_name=\"tiny\",profile=\"instruct\"} 1\n"),
            std::string::npos);
  EXPECT_NE(text.find("nibble_pages_capacity{model_name=\"tiny\"} 64\n"), std::string::npos);
}

}  // namespace
}  // namespace nibble
