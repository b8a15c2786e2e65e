// A series of runs: steps of load, each measured for several rounds, on one server or on two in
// turn; the spread over the rounds and the ratio of the servers. Pure arithmetic on what was run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/load_metrics.h"

namespace nibble {

/// One figure over the rounds of a step.
struct Spread {
  double median = 0.0;
  double least = 0.0;
  double most = 0.0;
  size_t count = 0;
};
/// With no values, count is 0.
Spread spread_of(std::vector<double> values);

/// The rounds of one step on one server. A round that is invalid has its say and no figures.
struct StepRounds {
  std::vector<LoadMetrics> rounds;
};

struct LoadStep {
  std::string name;   // "30 clients" or "2.5 requests/s"
  double load = 0.0;  // the number in it, for charts
  StepRounds first;
  StepRounds second;  // of --against; else empty
};

struct ServerFacts {
  std::string url;
  std::string model;
};

struct LoadReport {
  std::vector<Json::Member> machine;   // facts of the client's machine, in order
  std::vector<Json::Member> settings;  // what was asked for
  ServerFacts first;
  std::optional<ServerFacts> second;
  std::string load_label = "clients";  // of LoadStep::load
  std::vector<LoadStep> steps;
  std::vector<double> percents;
  Goodput goodput;
  bool shares_prompts = false;  // a prefix, or turns: the load itself has what a cache can hold
  double price_per_hour = 0.0;  // of the server; 0: none was given
  std::string currency;
  std::string note;  // why it is not the whole of what was asked for; empty: it is
};

/// A figure of a run that reports have a line or a column for.
struct Figure {
  std::string key;    // of JSON: "output_throughput"
  std::string label;  // for people: "output tok/s"
  std::string unit;
  int digits = 1;
  std::optional<double> (*value)(const LoadMetrics& metrics, double percent) = nullptr;
  double percent = 0.0;  // for latencies
};
/// All figures of a report, in its order.
std::vector<Figure> figures_of(const LoadReport& report);

/// Over the valid rounds that have it.
Spread spread_of(const StepRounds& rounds, const Figure& figure);
/// first / second, round by round.
Spread ratio_of(const LoadStep& step, const Figure& figure);

/// Output tokens for one unit of currency.
double tokens_per_price(double tokens_per_second, double price_per_hour);

/// Why the report's figures cannot be used; empty: they can. An error in it is not: it is counted.
std::string trouble_of(const LoadReport& report);

}  // namespace nibble
