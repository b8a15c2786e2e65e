// MaskThreads: the threads that make masks which take long (base/slow_constraint.h). The answers of
// one process share them. Private to this module.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace nibble {

class MaskThreads {
 public:
  /// Those of the process; they start with the first call.
  static MaskThreads& shared();
  ~MaskThreads();
  MaskThreads(const MaskThreads&) = delete;
  MaskThreads& operator=(const MaskThreads&) = delete;

  /// Each sequence has one task at most, so what waits is bounded by the sequences.
  void post(std::function<void()> task);

 private:
  MaskThreads();
  void run();

  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace nibble
