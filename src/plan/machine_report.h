// This is what `nibble doctor` says of a machine: facts in, lines out. Nothing here asks the
// machine, so that any machine can be reported in a test; the facts are gathered by
// cli/plan/machine_facts.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "plan/card_table.h"

namespace nibble {

/// The outcome of a plan with default flags for one model on the first card.
struct Expectation {
  std::string model;                       // "qwen3.6-35b-a3b"
  std::string recipe;                      // "mixed"
  int64_t weight_bytes = 0;                // on the card
  std::optional<int32_t> longest_request;  // absent: it does not fit
  double tokens_per_second = 0;  // of one stream at most, computed; 0: the bandwidth is not known
};

struct FolderFacts {
  std::string purpose;  // "Hugging Face cache"
  std::string path;
  enum class State : uint8_t { writable, read_only, absent, unusable } state = State::absent;
  int64_t free_bytes = 0;  // of its file system
  std::string advice;      // what names another one
};

struct MachineFacts {
  std::string version;    // of this program
  std::string cuda_code;  // targets of this binary, as `--version` prints them
  bool built_with_cuda = false;
  std::vector<GpuFacts> gpus;
  std::string gpu_trouble;     // why no card can be asked, where one may be
  std::string driver_version;  // "580.159.03"; empty: none
  int32_t driver_cuda = 0;     // 13000: the newest CUDA that it runs; 0: none
  std::string cuda_trouble;    // why the CUDA backend cannot use the first card; empty: it can
  std::vector<Expectation> expectations;
  int32_t cores = 0;         // usable
  std::string isa;           // of the CPU backend: avx512, avx2, neon or scalar
  int64_t memory_bytes = 0;  // available to this process
  std::vector<FolderFacts> folders;
  int32_t port = 8000;
  std::string port_trouble;  // why it cannot be listened on; empty: it can
};

enum class Health : uint8_t { fine, note, not_fine };
std::string_view health_name(Health health);

struct HealthLine {
  std::string subject;  // "driver"
  Health health = Health::fine;
  std::string text;
  std::string advice;  // what to do; empty: nothing
};

std::vector<HealthLine> machine_report(const MachineFacts& facts);
/// True if no line is not_fine.
bool all_fine(const std::vector<HealthLine>& lines);

std::string machine_text(const std::vector<HealthLine>& lines);
Json machine_json(const std::vector<HealthLine>& lines);

}  // namespace nibble
