// A fixed set of threads that run index ranges. One parallel_for at a time; the caller works too.
// Not a task queue: no futures, no nesting.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace nibble {

class ThreadPool {
 public:
  /// `threads` counts the caller: 1 means no extra thread. 0 means one per usable core.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;
  /// Calls task(begin, end) over disjoint chunks that cover [0, count), and waits for all. Chunks
  /// hold at least `grain` indices; which thread runs which chunk is not fixed, so tasks must not
  /// let results depend on it.
  void parallel_for(size_t count, size_t grain, const std::function<void(size_t, size_t)>& task);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Cores this process may use (respects the affinity mask).
int usable_cores();

}  // namespace nibble
