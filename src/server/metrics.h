// Metrics: what has been served, as Prometheus reads it. Each row stands under this program's name
// and, where vLLM has it, under vLLM's, so that its dashboards, autoscalers and gateways work.
// One thread.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine_stats.h"
#include "engine/messages.h"
#include "server/images/image_intake.h"

namespace nibble {

/// Counts of values at most each bound, and of all; their sum.
class Histogram {
 public:
  explicit Histogram(std::span<const double> bounds) : bounds_(bounds), counts_(bounds.size()) {}
  void add(double value, int64_t times = 1);

  std::span<const double> bounds() const { return bounds_; }
  std::span<const int64_t> counts() const { return counts_; }  // cumulative, by bound
  int64_t count() const { return count_; }
  double sum() const { return sum_; }

 private:
  std::span<const double> bounds_;
  std::vector<int64_t> counts_;
  int64_t count_ = 0;
  double sum_ = 0.0;
};

class Metrics {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Metrics();
  /// Sets whether prompts are looked up at all. Call it before the first sequence.
  void cache_is(CacheMode mode) { cache_ = mode; }
  /// A sequence was submitted, said something, ended.
  void begin(uint64_t id, Time now);
  void take(const EngineEvent& event, Time now);
  /// A sound request came, under this profile or, empty, none.
  void ask(const std::string& profile) { ++asked_[profile]; }
  /// Calls of tools that a model made, of a request that has ended.
  struct Calls {
    int64_t complete = 0;
    int64_t malformed = 0;  // stayed text
  };
  void call(const Calls& calls);
  /// An answer with this status was given instead of a generation.
  void refuse(int status);

  /// Tokens of all sequences; the generated ones also of those that still run.
  struct Tokens {
    int64_t prompt = 0;
    int64_t cached = 0;  // prompt tokens from the cache
    int64_t generated = 0;
  };
  Tokens tokens() const { return {prompt_tokens_, cached_tokens_, tokens_so_far_}; }
  /// The progress of a live sequence: how long it has been here, what it has said.
  struct Progress {
    double seconds = 0.0;
    int64_t generated = 0;
  };
  Progress progress(uint64_t id, Time now) const;

  /// The exposition format, version 0.0.4.
  std::string text(const EngineStats& engine, std::string_view model,
                   const ImageIntake::Counts& images = {}) const;

 private:
  struct Timing {
    Time begin;
    Time last;  // token
    bool spoke = false;
    int64_t generated = 0;
  };
  std::map<uint64_t, Timing> timings_;
  std::map<std::string, int64_t> asked_;     // by profile
  std::map<std::string, int64_t> finished_;  // by reason
  std::map<int, int64_t> refused_;           // by status
  Calls calls_;
  CacheMode cache_ = CacheMode::exact;
  int64_t prompt_tokens_ = 0;
  int64_t cached_tokens_ = 0;
  int64_t generated_tokens_ = 0;
  int64_t tokens_so_far_ = 0;                    // generated, of live sequences too
  Histogram first_token_, inter_token_, whole_;  // seconds
  Histogram prompt_sizes_, answer_sizes_;        // tokens
};

}  // namespace nibble
