// The flags of `nibble bench serve` as numbers: what load, on which servers, for how long, and
// where the results go.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/load_client.h"
#include "bench/load_series.h"
#include "cli/verb.h"

namespace nibble {

std::span<const Option> bench_serve_options();

/// One step of load: so many clients, or so many requests a second.
struct LoadLevel {
  int32_t clients = 0;
  double rate = 0.0;
  std::string name() const;
  double number() const { return clients > 0 ? clients : rate; }
};

struct LoadOptions {
  LoadTarget first;
  std::optional<LoadTarget> second;
  std::string model;  // empty: the server's first
  std::vector<LoadLevel> levels;
  WorkloadPlan workload;    // its seed is used by the first round
  int64_t tasks_given = 0;  // 0: by the load
  double seconds = 0.0;
  int32_t turns = 1;
  double pause_seconds = 0.0;
  double burstiness = 1.0;
  OutlierPlan outliers;
  int32_t rounds = 3;
  std::optional<int64_t> warmups;
  MetricsPlan metrics;
  double price_per_hour = 0.0;
  std::string currency;

  /// Tasks of one round.
  int64_t tasks(const LoadLevel& level) const;
};

/// Errors: a line for each value that an option cannot have.
Result<LoadOptions> read_load_options(const Arguments& arguments);

/// The flags that shape the load, as the report names them.
std::vector<Json::Member> load_settings(const LoadOptions& options);

}  // namespace nibble
