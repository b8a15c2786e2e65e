// The figures of one run of a load test, out of its records. Latencies are of complete answers
// alone; errors and cut answers are counted beside them. Pure arithmetic.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/load_record.h"
#include "bench/summary.h"

namespace nibble {

/// Bounds in milliseconds that a request must keep to be a good one; absent: any.
struct Goodput {
  std::optional<double> ttft_ms, tpot_ms, e2el_ms;
  bool asked() const { return ttft_ms || tpot_ms || e2el_ms; }
};
/// "ttft:500,tpot:50,e2el:9000", in any order. Errors: invalid_argument.
Result<Goodput> parse_goodput(std::string_view text);

struct MetricsPlan {
  std::vector<double> percents = {50.0, 90.0, 95.0, 99.0};
  Goodput goodput;
  double late_seconds = 0.010;  // a request sent later than this after it was due is late
  double late_share_max = 0.05;
};

/// The end of one outlier.
struct OutlierResult {
  int64_t input_tokens = 0;
  std::optional<double> ttft_ms;  // absent: it failed
  std::string error;
};

struct LoadMetrics {
  int64_t completed = 0;
  int64_t failed = 0;
  int64_t stopped = 0;
  int64_t short_answers = 0;              // complete, with fewer tokens than asked for
  std::map<std::string, int64_t> errors;  // by what happened, with numbers
  int64_t input_tokens = 0, output_tokens = 0, cached_tokens = 0;
  double seconds = 0.0;
  double requests_per_second = 0.0;
  double good_per_second = 0.0;
  double output_per_second = 0.0;  // tokens over the whole run
  double total_per_second = 0.0;
  /// It also takes what the server counted of answers that were stopped. Absent: none were.
  std::optional<double> output_with_stopped, total_with_stopped;
  /// Tokens a second while every client of a closed loop has a request in flight: from the last of
  /// the first tokens that the clients see to the end of the first client that finds no more
  /// requests. With one request for each client: while all streams generate. Tokens of an answer
  /// are spread evenly over its events. Absent after an error, with turns, or with an end by time.
  std::optional<double> busy_per_second;
  Summary ttft_ms, tpot_ms, itl_ms, e2el_ms;
  double peak_output_per_second = 0.0;  // of one second, in events, as vLLM counts
  int64_t peak_requests = 0;            // at once, in one second
  double late_share = 0.0;
  double late_ms_most = 0.0;
  double cpu_share = 0.0;  // of one core, of this process
  std::vector<OutlierResult> outliers;
  std::vector<double> output_by_second;  // tokens in each second of the run, spread over events

  /// Why the figures of the run are not to be used; empty: they are.
  std::string invalid;
};

LoadMetrics measure(const RunRecord& run, const MetricsPlan& plan);

}  // namespace nibble
