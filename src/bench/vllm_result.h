// A run in the words of `vllm bench serve --save-detailed`: its keys, units and empty values, so
// that vLLM's own tools read it. Own keys follow them.
#pragma once

#include <limits>
#include <string>

#include "base/json.h"
#include "bench/load_metrics.h"

namespace nibble {

struct VllmHead {
  std::string date;  // "20261124-091500"
  std::string label;
  std::string model;
  LoadApi api = LoadApi::completions;
  double request_rate = std::numeric_limits<double>::infinity();
  double burstiness = 1.0;
  int32_t clients = 0;  // 0: null, an open loop
  Goodput goodput;
};

Json vllm_result(const VllmHead& head, const RunRecord& run, const LoadMetrics& metrics);

}  // namespace nibble
