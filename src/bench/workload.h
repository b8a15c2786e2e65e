// Workload: the requests of a load test, made from a seed. Any request can be made alone and is the
// same whenever it is made. It sends nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "bench/answer_reader.h"

namespace nibble {

/// ids: prompts of completions are lists of token ids, so their length is exact.
enum class PromptForm : uint8_t { ids, words };

struct WorkloadPlan {
  LoadApi api = LoadApi::completions;
  PromptForm form = PromptForm::ids;
  std::string model;
  int64_t input_tokens = 1024;  // of a prompt, or of each turn's new message
  int64_t output_tokens = 128;
  double range_ratio = 0.0;   // lengths are even in (1 - r) .. (1 + r) of both
  int64_t prefix_tokens = 0;  // the same ones before every prompt
  int32_t id_first = 300;     // of random token ids
  int32_t id_last = 2000;     // one beyond the last
  /// Words that make so many tokens on this server; found by a request before the run.
  double words_per_token = 1.0;
  Json extra;  // members of every body: sampling, stop, whatever the server knows; or null
  bool ignore_eos = true;
  /// Asks for a count with each event, so that the tokens of a stopped answer are known.
  bool counts_with_events = false;
  uint64_t seed = 0;
};

/// A turn that was said before in a conversation of chat messages.
struct Exchange {
  std::string question;
  std::string answer;
};

struct PlannedRequest {
  std::string body;  // JSON
  int64_t output_tokens = 0;
  std::string question;  // chat: of this turn
};

class Workload {
 public:
  explicit Workload(WorkloadPlan plan) : plan_(std::move(plan)) {}
  const WorkloadPlan& plan() const { return plan_; }
  /// Turn before.size() of conversation `task`.
  PlannedRequest request(int64_t task, const std::vector<Exchange>& before) const;
  /// A single request of exactly so many tokens, with a prompt of its own.
  PlannedRequest outlier(int64_t number, int64_t input_tokens, int64_t output_tokens) const;

 private:
  struct Lengths {
    int64_t input = 0;
    int64_t output = 0;
  };
  Json body(const Lengths& lengths) const;
  std::string words(int64_t tokens, uint64_t seed) const;
  Json prompt_ids(int64_t tokens, uint64_t seed) const;
  PlannedRequest make(const Lengths& lengths, uint64_t seed,
                      const std::vector<Exchange>& before) const;

  WorkloadPlan plan_;
};

}  // namespace nibble
