// Figures of runs whose records are written by hand, so that each is known beforehand.
#include "bench/load_metrics.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

RequestRecord answered(int64_t task, double sent, std::vector<double> times, int64_t tokens) {
  RequestRecord record{.task = task,
                       .planned_output = tokens,
                       .due = sent,
                       .sent = sent,
                       .token_times = std::move(times),
                       .status = 200};
  record.ended = record.token_times.back();
  record.usage = {.prompt_tokens = 10, .completion_tokens = tokens};
  return record;
}

RequestRecord failed(RequestOutcome outcome, std::string error) {
  return {.token_times = {0.1, 99.0}, .ended = 1.0, .outcome = outcome, .error = std::move(error)};
}

TEST(LoadMetrics, HoldAnswersAlone) {
  RunRecord run{
      .requests = {answered(0, 0.0, {1.0, 2.0, 3.0}, 3), answered(1, 0.5, {2.5, 4.5}, 5),
                   failed(RequestOutcome::refused, "429 busy"),
                   failed(RequestOutcome::refused, "429 busy"),
                   failed(RequestOutcome::cut, "early"), failed(RequestOutcome::stopped, "")},
      .seconds = 5.0,
      .cpu_seconds = 1.0};
  const LoadMetrics metrics = measure(run, {});
  EXPECT_EQ(metrics.completed, 2);
  EXPECT_EQ(metrics.failed, 3);
  EXPECT_EQ(metrics.stopped, 1);
  EXPECT_EQ(metrics.errors.at("refused: 429 busy"), 2);
  EXPECT_EQ(metrics.errors.at("cut: early"), 1);
  EXPECT_EQ(metrics.output_tokens, 8);
  EXPECT_DOUBLE_EQ(metrics.output_per_second, 1.6);
  EXPECT_DOUBLE_EQ(metrics.total_per_second, 28.0 / 5.0);
  EXPECT_DOUBLE_EQ(metrics.ttft_ms.mean, 1500.0);
  EXPECT_DOUBLE_EQ(metrics.tpot_ms.mean, (1000.0 + 500.0) / 2);
  EXPECT_EQ(metrics.itl_ms.count, 3u);
  EXPECT_DOUBLE_EQ(metrics.e2el_ms.most, 4000.0);
  EXPECT_DOUBLE_EQ(metrics.cpu_share, 0.2);
  EXPECT_EQ(metrics.invalid, "");
}

TEST(LoadMetrics, GoodRequestsKeepEveryBound) {
  RunRecord run{.requests = {answered(0, 0.0, {0.5, 0.6}, 2), answered(1, 0.0, {0.5, 0.8}, 2),
                             answered(2, 0.0, {0.7, 0.8}, 2), answered(3, 0.0, {0.4}, 1)},
                .seconds = 2.0};
  const auto good = [&](const char* text) {
    return measure(run, {.goodput = parse_goodput(text).value()}).good_per_second * 2.0;
  };
  EXPECT_EQ(good("ttft:500"), 3.0);  // the bound itself is kept
  EXPECT_EQ(good("ttft:500,tpot:150"), 2.0);
  EXPECT_EQ(good("tpot:150"), 3.0);  // one token has no time between tokens
  EXPECT_EQ(good("e2el:450"), 1.0);
  for (const char* bad : {"", "ttft", "ttft:", "ttft:x", "ttft:-1", "ttft:1,ttft:2", "tbt:3",
                          "ttft:nan", "ttft:1e10", "ttft:1,"})
    EXPECT_FALSE(parse_goodput(bad).ok()) << bad;
}

TEST(LoadMetrics, TheBusySpanIsWhileAllStreamsGenerate) {
  // First tokens at 1 and 2, first end at 4: events in (2, 4] are 3 and 4 of one, 3.5 of the other.
  RunRecord run{
      .requests = {answered(0, 0.0, {1.0, 2.0, 3.0, 4.0}, 8), answered(1, 0.0, {2.0, 3.5, 6.0}, 3)},
      .clients = 2,
      .seconds = 6.0,
      .requests_per_client = 1};
  EXPECT_DOUBLE_EQ(*measure(run, {}).busy_per_second, (2 * 2.0 + 1.0) / 2.0);
  run.requests.push_back(failed(RequestOutcome::cut, "x"));
  EXPECT_FALSE(measure(run, {}).busy_per_second.has_value());
  run.requests.pop_back();
  run.requests.push_back(answered(2, 4.0, {5.0, 7.0}, 2));  // the first client goes on
  EXPECT_DOUBLE_EQ(*measure(run, {}).busy_per_second, (2 * 2.0 + 1.0 + 1.0 + 1.0) / 4.0);
}

TEST(LoadMetrics, ALateClientIsNoMeasurement) {
  RunRecord run{.seconds = 1.0};
  for (int i = 0; i < 100; ++i) {
    run.requests.push_back(answered(i, 0.1, {0.2}, 1));
    run.requests.back().due = i < 5 ? 0.0 : 0.1;
  }
  EXPECT_EQ(measure(run, {}).invalid, "");
  EXPECT_DOUBLE_EQ(measure(run, {}).late_share, 0.05);
  EXPECT_DOUBLE_EQ(measure(run, {}).late_ms_most, 100.0);
  run.requests[5].due = 0.0;
  EXPECT_NE(measure(run, {}).invalid.find("late with 6 of 100"), std::string::npos);
  EXPECT_NE(measure(RunRecord{.requests = {failed(RequestOutcome::cut, "x")}}, {}).invalid, "");
}

TEST(LoadMetrics, StoppedAnswersCountInRatesOfTheirOwn) {
  RequestRecord stopped = failed(RequestOutcome::stopped, "");
  stopped.usage = {.prompt_tokens = 10, .completion_tokens = 6};
  RequestRecord early = stopped;  // its prompt was not finished
  early.token_times.clear();
  early.usage.completion_tokens = 0;
  const RunRecord run{.requests = {answered(0, 0.0, {1.0, 2.0}, 4), stopped, early},
                      .seconds = 2.0};
  const LoadMetrics metrics = measure(run, {});
  EXPECT_DOUBLE_EQ(metrics.output_per_second, 2.0);
  EXPECT_DOUBLE_EQ(*metrics.output_with_stopped, 5.0);
  EXPECT_DOUBLE_EQ(*metrics.total_with_stopped, 15.0);
  EXPECT_FALSE(measure({.requests = {answered(0, 0.0, {1.0}, 1)}, .seconds = 1.0}, {})
                   .output_with_stopped.has_value());
}

TEST(LoadMetrics, OutliersStandApart) {
  RequestRecord outlier = answered(0, 1.0, {9.0}, 16);
  outlier.kind = RequestKind::outlier;
  outlier.planned_input = 60000;
  RunRecord run{.requests = {answered(0, 0.0, {1.0}, 1), outlier}, .seconds = 9.0};
  const LoadMetrics metrics = measure(run, {});
  EXPECT_EQ(metrics.completed, 1);
  EXPECT_EQ(metrics.output_tokens, 1);
  ASSERT_EQ(metrics.outliers.size(), 1u);
  EXPECT_EQ(metrics.outliers[0].input_tokens, 60000);
  EXPECT_DOUBLE_EQ(*metrics.outliers[0].ttft_ms, 8000.0);
}

}  // namespace
}  // namespace nibble
