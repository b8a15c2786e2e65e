// Workers spin briefly on a generation counter, then sleep: a decode step has many short ranges.
#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"

namespace nibble {

namespace {
constexpr int kSpins = 2000;  // some 10 us: longer than the gap between two ranges of one step

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}
}  // namespace

struct ThreadPool::State {
  std::vector<std::jthread> workers;
  std::mutex mutex;
  std::condition_variable wake;
  std::atomic<uint64_t> generation{0};
  std::atomic<bool> stopping{false};
  std::atomic<int> running{0};

  // The current range: written before `generation` is advanced, read after it is seen.
  const std::function<void(size_t, size_t)>* task = nullptr;
  size_t count = 0;
  size_t chunk = 1;
  std::atomic<size_t> next{0};

  void run_chunks() {
    for (;;) {
      const size_t begin = next.fetch_add(chunk, std::memory_order_relaxed);
      if (begin >= count) return;
      (*task)(begin, std::min(count, begin + chunk));
    }
  }

  void work() {
    uint64_t seen = 0;
    for (;;) {
      for (int spin = 0; spin < kSpins && generation.load(std::memory_order_acquire) == seen;
           ++spin)
        pause_briefly();
      if (generation.load(std::memory_order_acquire) == seen) {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return generation.load(std::memory_order_acquire) != seen; });
      }
      seen = generation.load(std::memory_order_acquire);
      if (stopping.load()) return;
      run_chunks();
      running.fetch_sub(1, std::memory_order_release);
    }
  }

  void advance() {
    {
      std::lock_guard lock(mutex);
      generation.fetch_add(1, std::memory_order_release);
    }
    wake.notify_all();
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  const int wanted = threads > 0 ? threads : usable_cores();
  for (int i = 1; i < wanted; ++i) state_->workers.emplace_back([s = state_.get()] { s->work(); });
}

ThreadPool::~ThreadPool() {
  state_->stopping.store(true);
  state_->advance();
}

int ThreadPool::size() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::parallel_for(size_t count, size_t grain,
                              const std::function<void(size_t, size_t)>& task) {
  CHECK(grain > 0, "grain must be positive");
  const auto threads = static_cast<size_t>(size());
  if (threads == 1 || count <= grain) {
    if (count > 0) task(0, count);
    return;
  }
  State& s = *state_;
  s.task = &task;
  s.count = count;
  s.chunk = std::max(grain, (count + threads * 4 - 1) / (threads * 4));
  s.next.store(0, std::memory_order_relaxed);
  s.running.store(static_cast<int>(threads) - 1, std::memory_order_relaxed);
  s.advance();
  s.run_chunks();
  while (s.running.load(std::memory_order_acquire) > 0) pause_briefly();
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) {
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace nibble
