// The rules of open and closed loops.
#include "bench/load_pacer.h"

#include <cmath>
#include <random>

#include "base/check.h"

namespace nibble {

namespace {

double interval(const ArrivalPlan& plan, std::mt19937_64& random) {
  if (std::isinf(plan.burstiness)) return 1.0 / plan.rate;
  return std::gamma_distribution<double>(plan.burstiness,
                                         1.0 / (plan.rate * plan.burstiness))(random);
}

}  // namespace

std::vector<double> arrival_times(const ArrivalPlan& plan) {
  CHECK(plan.tasks > 0 && plan.rate > 0.0 && plan.burstiness > 0.0, "arrivals of ", plan.tasks,
        " tasks at ", plan.rate, " with burstiness ", plan.burstiness);
  std::vector<double> times(static_cast<size_t>(plan.tasks), 0.0);
  if (std::isinf(plan.rate)) return times;
  std::mt19937_64 random(plan.seed);
  double now = 0.0;
  for (double& time : times) time = now += interval(plan, random);
  const double scale = static_cast<double>(plan.tasks) / plan.rate / now;
  if (now > 0.0)
    for (double& time : times) time *= scale;
  return times;
}

LoadPacer::LoadPacer(PacePlan plan) : plan_(std::move(plan)) {
  CHECK(plan_.clients > 0 || !plan_.arrivals.empty(), "neither clients nor arrivals");
  CHECK(plan_.turns > 0 && plan_.tasks > 0, plan_.tasks, " tasks of ", plan_.turns, " turns");
}

std::vector<Turn> LoadPacer::begin() {
  std::vector<Turn> due;
  if (plan_.clients == 0) {
    for (const double time : plan_.arrivals) due.push_back({next_task_++, 0, time});
  } else {
    for (int32_t client = 0; client < plan_.clients; ++client) {
      if (plan_.seconds == 0.0 && next_task_ >= plan_.tasks) break;
      due.push_back({next_task_++, 0, 0.0});
    }
  }
  open_ = static_cast<int64_t>(due.size());
  return due;
}

std::vector<Turn> LoadPacer::ended(const Turn& turn, TurnEnd end, double now_seconds) {
  CHECK(open_ > 0, "a turn ended that was not begun");
  --open_;
  const bool last = end == TurnEnd::failed || turn.turn + 1 >= plan_.turns;
  if (last && end == TurnEnd::answered) ++completed_;
  std::vector<Turn> due;
  if (!last)
    due.push_back({turn.task, turn.turn + 1, now_seconds + plan_.pause_seconds});
  else if (plan_.clients > 0 && (next_task_ < plan_.tasks || now_seconds < plan_.seconds || held_))
    due.push_back({next_task_++, 0,
                   now_seconds + (end == TurnEnd::failed ? plan_.error_pause_seconds : 0.0)});
  open_ += static_cast<int64_t>(due.size());
  return due;
}

bool LoadPacer::time_is_up(double now_seconds) const {
  return plan_.seconds > 0.0 && now_seconds >= plan_.seconds && completed_ >= plan_.tasks && !held_;
}

}  // namespace nibble
