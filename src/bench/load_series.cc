// Spreads over rounds, and ratios of rounds that stood beside each other.
#include "bench/load_series.h"

#include <algorithm>

#include "plan/text_table.h"

namespace nibble {

namespace {

using Value = std::optional<double>;

std::string percent_label(double percent) {
  const int digits = percent == static_cast<double>(static_cast<int64_t>(percent)) ? 0 : 1;
  return concat("p", fixed_text(percent, digits));
}

void add_latencies(std::vector<Figure>& figures, const std::vector<double>& percents) {
  struct Latency {
    const char* key;
    const char* label;
    int digits;
    Value (*value)(const LoadMetrics&, double);
  };
  const Latency latencies[] = {
      {"ttft", "first token", 1,
       [](const LoadMetrics& m, double p) { return Value(m.ttft_ms.at(p)); }},
      {"tpot", "time per output token", 2,
       [](const LoadMetrics& m, double p) {
         return m.tpot_ms.count > 0 ? Value(m.tpot_ms.at(p)) : Value();
       }},
      {"itl", "time between events", 2,
       [](const LoadMetrics& m, double p) {
         return m.itl_ms.count > 0 ? Value(m.itl_ms.at(p)) : Value();
       }},
      {"e2el", "whole request", 1,
       [](const LoadMetrics& m, double p) { return Value(m.e2el_ms.at(p)); }}};
  for (const Latency& each : latencies)
    for (const double percent : percents)
      figures.push_back({.key = concat(percent_label(percent), "_", each.key, "_ms"),
                         .label = concat(each.label, " ", percent_label(percent)),
                         .unit = "ms",
                         .digits = each.digits,
                         .value = each.value,
                         .percent = percent});
}

/// Rates of a whole run, or of the time while all clients are served.
std::vector<Figure> rate_figures() {
  return {{.key = "request_throughput",
           .label = "requests",
           .unit = "1/s",
           .digits = 2,
           .value = [](const LoadMetrics& m, double) { return Value(m.requests_per_second); }},
          {.key = "output_throughput",
           .label = "output, whole run",
           .unit = "tokens/s",
           .value = [](const LoadMetrics& m, double) { return Value(m.output_per_second); }},
          {.key = "busy_output_throughput",
           .label = "output, while all clients are served",
           .unit = "tokens/s",
           .value = [](const LoadMetrics& m, double) { return m.busy_per_second; }},
          {.key = "output_throughput_with_stopped",
           .label = "output, stopped answers too",
           .unit = "tokens/s",
           .value = [](const LoadMetrics& m, double) { return m.output_with_stopped; }},
          {.key = "total_token_throughput_with_stopped",
           .label = "input and output, stopped answers too",
           .unit = "tokens/s",
           .value = [](const LoadMetrics& m, double) { return m.total_with_stopped; }},
          {.key = "total_token_throughput",
           .label = "input and output",
           .unit = "tokens/s",
           .value = [](const LoadMetrics& m, double) { return Value(m.total_per_second); }}};
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  return {.median = percentile_of(values, 50.0),
          .least = values.front(),
          .most = values.back(),
          .count = values.size()};
}

std::vector<Figure> figures_of(const LoadReport& report) {
  std::vector<Figure> figures = rate_figures();
  if (report.goodput.asked())
    figures.push_back(
        {.key = "request_goodput",
         .label = "good requests",
         .unit = "1/s",
         .digits = 2,
         .value = [](const LoadMetrics& m, double) { return Value(m.good_per_second); }});
  add_latencies(figures, report.percents);
  return figures;
}

Spread spread_of(const StepRounds& rounds, const Figure& figure) {
  std::vector<double> values;
  for (const LoadMetrics& each : rounds.rounds)
    if (each.invalid.empty())
      if (const Value value = figure.value(each, figure.percent)) values.push_back(*value);
  return spread_of(std::move(values));
}

Spread ratio_of(const LoadStep& step, const Figure& figure) {
  std::vector<double> ratios;
  const size_t pairs = std::min(step.first.rounds.size(), step.second.rounds.size());
  for (size_t i = 0; i < pairs; ++i) {
    const LoadMetrics& first = step.first.rounds[i];
    const LoadMetrics& second = step.second.rounds[i];
    if (!first.invalid.empty() || !second.invalid.empty()) continue;
    const Value above = figure.value(first, figure.percent);
    const Value below = figure.value(second, figure.percent);
    if (above && below && *below > 0.0) ratios.push_back(*above / *below);
  }
  return spread_of(std::move(ratios));
}

double tokens_per_price(double tokens_per_second, double price_per_hour) {
  constexpr double kSecondsPerHour = 3600.0;
  return tokens_per_second * kSecondsPerHour / price_per_hour;
}

std::string trouble_of(const LoadReport& report) {
  for (const LoadStep& step : report.steps)
    for (const StepRounds* rounds : {&step.first, &step.second})
      for (const LoadMetrics& each : rounds->rounds)
        if (!each.invalid.empty()) return concat(step.name, ": ", each.invalid);
  return {};
}

}  // namespace nibble
