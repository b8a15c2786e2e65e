// StepWatch: notices a step that does not end, from a thread beside the one that computes. The step
// itself pays two locks that nobody else holds; how it waits for its device stays as it is.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

namespace nibble {

class StepWatch {
 public:
  /// `on_overdue` is called once, on the watch's thread, when a step has taken `deadline` and at
  /// most a tenth more; less than a millisecond counts as one. Zero: never, and there is no thread.
  StepWatch(std::chrono::duration<double> deadline, std::function<void()> on_overdue);
  ~StepWatch() { close(); }
  StepWatch(const StepWatch&) = delete;
  StepWatch& operator=(const StepWatch&) = delete;

  // Call these from the thread that computes.
  void begin();
  /// False: the step was overdue and on_overdue has spoken for it; what it gave counts no more.
  [[nodiscard]] bool end();

  /// Ends the watch's thread; waits for on_overdue if it runs. Not from on_overdue.
  void close();
  bool overdue() const;

 private:
  void run();

  std::chrono::duration<double> deadline_;
  std::function<void()> on_overdue_;
  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable closing_changed_;
  uint64_t steps_ = 0;  // begun so far
  bool computing_ = false;
  bool overdue_ = false;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace nibble
