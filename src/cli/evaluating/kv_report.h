// The output of `nibble eval kv`: a table with a recommendation, or JSON.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "eval/kv_verdict.h"

namespace nibble {

struct KvReport {
  std::vector<KvFinding> findings;  // of formats other than BF16
  KvLimits limits;
  int64_t bf16_bytes = 0;  // of a token in all layers
};

/// Ends with a line that recommends the smallest harmless format.
std::string kv_report_text(const KvReport& report);
Json kv_report_json(const KvReport& report);

}  // namespace nibble
