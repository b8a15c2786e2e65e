// The load by which the scheduler's fairness is judged: closed-loop clients with short prompts, and
// long prompts that arrive together after a warm-up. Times are those of the client. For tests and
// bench/scheduler.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "engine/testing/fairness_simulation.h"

namespace nibble {

struct FairnessSetup {
  uint32_t seed = 1;
  int32_t clients = 30;
  int32_t prompt_min = 3000, prompt_max = 8000;
  int32_t output_min = 100, output_max = 500;
  std::vector<int32_t> long_prompts = {60000, 200000};
  double warm_up_ms = 30000.0;
  double measured_ms = 0.0;  // least time after the warm-up; it ends when the long ones have begun
  double limit_ms = 1e6;     // in any case
  CostParameters truth;
  CostParameters prior;  // what the scheduler believes at first
  double noise = 0.0;    // relative, of the time of a pass
  SchedulerLimits limits = {.rows_max = 8192, .sequences_max = 64};
  FreeResources pools = {.pages = 20000, .state_slots = 64, .host_pages = 20000, .host_slots = 64};
};

struct FairnessResult {
  std::vector<double> long_first_ms;  // by long prompt; infinite: never
  std::vector<double> short_first_ms;
  std::vector<double> gaps_ms;  // between tokens, of all
  std::vector<double> pass_ms;
  double prefill_tokens_per_second = 0.0;
  SimulationCounts counts;
};

inline double percentile(std::vector<double> values, double part) {
  if (values.empty()) return 0.0;
  const auto at = static_cast<size_t>(part * static_cast<double>(values.size() - 1) + 0.5);
  std::ranges::nth_element(values, values.begin() + static_cast<ptrdiff_t>(at));
  return values[at];
}

class FairnessRun {
 public:
  explicit FairnessRun(const FairnessSetup& setup)
      : setup_(setup),
        random_(setup.seed),
        truth_(setup.truth),
        scheduler_(setup.limits, CostModel(setup.prior)),
        engine_(scheduler_, setup.pools, [this](const PassShape& shape) { return pass(shape); }) {
    result_.long_first_ms.assign(setup.long_prompts.size(), INFINITY);
  }

  FairnessResult run() {
    int32_t started = 0;
    while (!over()) {
      // The clients come one after the other, 200 ms apart.
      while (started < setup_.clients && engine_.now_ms() >= 200.0 * started) submit(started++);
      if (!measuring_ && engine_.now_ms() >= setup_.warm_up_ms) start_measuring();
      const auto on_token = [this](const SimulatedSequence& s, double gap) { token(s, gap); };
      const auto on_finished = [this](const SimulatedSequence& s) {
        if (s.request.client >= 0) submit(s.request.client);
      };
      if (!engine_.step(on_token, on_finished)) engine_.wait_until(engine_.now_ms() + 1.0);
    }
    // Those who still wait have waited at least so long.
    for (const SimulatedSequence& s : engine_.live())
      if (s.first_token_ms < 0.0 && s.request.client >= 0)
        result_.short_first_ms.push_back(engine_.now_ms() - s.view.arrival_ms);
    result_.counts = engine_.counts();
    result_.prefill_tokens_per_second =
        prefill_tokens_ / (engine_.now_ms() - setup_.warm_up_ms) * 1000.0;
    return std::move(result_);
  }

 private:
  bool over() const {
    if (engine_.now_ms() >= setup_.limit_ms) return true;
    const auto begun = [](double ms) { return std::isfinite(ms); };
    return measuring_ && engine_.now_ms() >= setup_.warm_up_ms + setup_.measured_ms &&
           std::ranges::all_of(result_.long_first_ms, begun);
  }
  int32_t pick(int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random_);
  }
  double pass(const PassShape& shape) {
    double ms = truth_.ms(shape);
    if (setup_.noise > 0.0)
      ms *= std::clamp(std::normal_distribution<double>(1.0, setup_.noise)(random_), 0.5, 2.0);
    if (measuring_) {
      result_.pass_ms.push_back(ms);
      prefill_tokens_ += shape.prefill_tokens;
    }
    return ms;
  }
  void submit(int32_t client) {
    engine_.submit({.prompt = pick(setup_.prompt_min, setup_.prompt_max),
                    .output = pick(setup_.output_min, setup_.output_max),
                    .client = client});
  }
  void start_measuring() {
    measuring_ = true;
    for (size_t i = 0; i < setup_.long_prompts.size(); ++i)
      engine_.submit({.prompt = setup_.long_prompts[i],
                      .output = 100,
                      .client = -1 - static_cast<int32_t>(i)});
  }
  void token(const SimulatedSequence& s, double gap_ms) {
    if (!measuring_) return;
    const bool first = s.first_token_ms == s.last_token_ms;
    if (!first)
      result_.gaps_ms.push_back(gap_ms);
    else if (s.request.client < 0)
      result_.long_first_ms[static_cast<size_t>(-1 - s.request.client)] = gap_ms;
    else if (s.view.arrival_ms >= setup_.warm_up_ms)
      result_.short_first_ms.push_back(gap_ms);
  }

  FairnessSetup setup_;
  std::mt19937 random_;
  CostModel truth_;
  Scheduler scheduler_;
  SimulatedEngine engine_;
  bool measuring_ = false;
  double prefill_tokens_ = 0.0;
  FairnessResult result_;
};

}  // namespace nibble
