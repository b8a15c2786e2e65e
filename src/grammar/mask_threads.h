// MaskThreads: the threads that make masks (base/slow_constraint.h). The answers of one process
// share two sets of them. Private to this module.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace nibble {

class MaskThreads {
 public:
  /// The threads of masks that nobody knows to take long. A thread that is held up by a long mask
  /// is replaced by another one, so that the masks behind it do not wait.
  static MaskThreads& quick();
  /// The threads of masks of grammars that had a long one: two, however many masks there are,
  /// because the passes need the processor too.
  static MaskThreads& slow();

  explicit MaskThreads(size_t threads_max) : threads_max_(threads_max) {}
  ~MaskThreads();
  MaskThreads(const MaskThreads&) = delete;
  MaskThreads& operator=(const MaskThreads&) = delete;

  /// Each sequence has one task at most, so what waits is bounded by the sequences.
  void post(std::function<void()> task);
  /// Starts another thread if tasks wait and those that run have held their threads for long. Who
  /// waits for a task calls it now and then.
  void relieve();

 private:
  using Clock = std::chrono::steady_clock;
  void run(size_t thread);

  const size_t threads_max_;
  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::map<size_t, Clock::time_point> begun_;  // the tasks that run, by thread
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace nibble
