// Time is counted in looks, not read from a clock: a process that was stopped for a while (SIGSTOP,
// a debugger, a frozen container) goes on with the looks it had, and so does its step.
#include "engine/step_watch.h"

#include <algorithm>
#include <utility>

namespace nibble {
namespace {

constexpr int kLooks = 20;  // in one deadline
constexpr std::chrono::milliseconds kLeast{1};

}  // namespace

StepWatch::StepWatch(std::chrono::duration<double> deadline, std::function<void()> on_overdue)
    : deadline_(std::max<decltype(deadline_)>(deadline, kLeast)),
      on_overdue_(std::move(on_overdue)) {
  if (deadline.count() > 0.0) thread_ = std::thread([this] { run(); });
}

void StepWatch::begin() {
  const std::lock_guard lock(mutex_);
  computing_ = true;
  ++steps_;
}

bool StepWatch::end() {
  const std::lock_guard lock(mutex_);
  computing_ = false;
  return !overdue_;
}

void StepWatch::close() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  closing_changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool StepWatch::overdue() const {
  const std::lock_guard lock(mutex_);
  return overdue_;
}

void StepWatch::run() {
  std::unique_lock lock(mutex_);
  uint64_t seen = 0;
  int looks = 0;  // since it was first seen
  while (!closing_changed_.wait_for(lock, deadline_ / kLooks, [&] { return closing_; })) {
    looks = computing_ && steps_ == seen ? looks + 1 : 0;
    seen = steps_;
    overdue_ = looks == kLooks;
    if (overdue_) break;
  }
  lock.unlock();
  if (overdue()) on_overdue_();
}

}  // namespace nibble
