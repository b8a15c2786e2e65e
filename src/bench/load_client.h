// The client of a load test: sends the requests of a workload when they are due, over plain HTTP,
// and records what comes back. One thread, one event loop, no work between events but reading
// them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/http_url.h"
#include "bench/load_pacer.h"
#include "bench/load_record.h"
#include "bench/workload.h"

namespace nibble {

struct LoadTarget {
  HttpUrl url;  // its path is put before /v1
  std::string api_key;
  double silence_seconds = 600.0;  // without a byte: the request has failed
};

/// Prompts of these lengths are sent one after the other beside the load, which goes on until the
/// last is answered.
struct OutlierPlan {
  std::vector<int64_t> input_tokens;
  double after_seconds = 0.0;
  int64_t output_tokens = 16;
};

struct LoadRun {
  PacePlan pace;
  OutlierPlan outliers;
  /// Asked every 50 ms; true ends the run, and what is in flight is recorded as stopped.
  std::function<bool()> interrupted;
  /// Called after each end with the number of them.
  std::function<void(int64_t)> progress;
};

/// Errors: io if the name of the host is not known. All else is in the records.
Result<RunRecord> run_load(const LoadTarget& target, const Workload& workload, LoadRun run);

/// The first model of GET /v1/models. Errors: io if nobody answers; unsupported for another answer
/// than a list of models; invalid_argument where a key is wanted.
Result<std::string> first_model(const LoadTarget& target);

}  // namespace nibble
