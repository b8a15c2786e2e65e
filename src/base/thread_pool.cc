// Workers spin briefly at a gate, then sleep: a decode step has many short ranges. The caller waits
// only for workers that went through the gate, so a worker the system does not run costs nothing.
#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"

namespace nibble {

namespace {
/// Chunks of a long range do not become smaller than this: each begins without what the one before
/// it has fetched ahead.
constexpr size_t kGrainsLeast = 64;
constexpr int kSpins = 2000;  // some 10 us: longer than the gap between two ranges of one step

// The gate in one word: workers inside, whether it is open, and the number of the range.
constexpr uint64_t kInsideMask = 0xFFFF;
constexpr uint64_t kOpen = 0x10000;
constexpr int kRangeShift = 17;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}
}  // namespace

struct ThreadPool::State {
  std::mutex mutex;
  std::condition_variable wake;
  std::atomic<uint64_t> gate{0};
  std::atomic<int> sleepers{0};
  std::atomic<bool> stopping{false};

  // The current range: changed only while the gate is closed and nobody is inside.
  const std::function<void(size_t, size_t)>* task = nullptr;
  size_t count = 0;
  size_t chunk_least = 1;
  size_t shares = 1;  // a chunk is this part of what is left
  std::atomic<size_t> next{0};

  std::vector<std::jthread> workers;  // last: they end before what they use

  /// Chunks become smaller, so that all threads end at about the same time.
  void run_chunks() {
    size_t begin = next.load(std::memory_order_relaxed);
    while (begin < count) {
      const size_t end = std::min(count, begin + std::max(chunk_least, (count - begin) / shares));
      if (!next.compare_exchange_weak(begin, end, std::memory_order_relaxed)) continue;
      (*task)(begin, end);
      begin = next.load(std::memory_order_relaxed);
    }
  }

  /// True if there is a range after `seen` to help with, or nothing more to do at all.
  bool called(uint64_t seen) const {
    const uint64_t now = gate.load();
    return stopping.load() || ((now & kOpen) != 0 && now >> kRangeShift != seen);
  }

  void wait_for_call(uint64_t seen) {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (called(seen)) return;
      pause_briefly();
    }
    std::unique_lock lock(mutex);
    sleepers.fetch_add(1);  // before the look at the gate: see call()
    wake.wait(lock, [&] { return called(seen); });
    sleepers.fetch_sub(1);
  }

  /// Goes in if the gate is open; false if it closed meanwhile.
  bool enter(uint64_t& seen) {
    uint64_t now = gate.load();
    while ((now & kOpen) != 0 && now >> kRangeShift != seen) {
      if (!gate.compare_exchange_weak(now, now + 1)) continue;
      seen = now >> kRangeShift;
      return true;
    }
    return false;
  }

  void work() {
    uint64_t seen = 0;
    for (;;) {
      wait_for_call(seen);
      if (stopping.load()) return;
      if (!enter(seen)) continue;
      run_chunks();
      gate.fetch_sub(1, std::memory_order_release);
    }
  }

  /// Wakes every worker that sleeps. A worker counts itself before it looks at the gate, and the
  /// gate was opened before this counts: one of the two sees the other.
  void call() {
    if (sleepers.load() == 0) return;
    { std::lock_guard lock(mutex); }
    wake.notify_all();
  }

  void close_and_wait() {
    gate.fetch_and(~kOpen);
    for (int spin = 0; (gate.load(std::memory_order_acquire) & kInsideMask) != 0; ++spin) {
      if (spin < kSpins) {
        pause_briefly();
      } else {
        std::this_thread::yield();  // a worker lost its core in the middle of a chunk
      }
    }
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  const int wanted = threads > 0 ? threads : usable_cores();
  for (int i = 1; i < wanted; ++i) state_->workers.emplace_back([s = state_.get()] { s->work(); });
}

ThreadPool::~ThreadPool() {
  state_->stopping.store(true);
  state_->call();
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
  s.shares = threads * 4;
  const size_t most = std::max(grain, (count + s.shares - 1) / s.shares);
  s.chunk_least = std::min(most, std::max(kGrainsLeast * grain, count / (s.shares * 8)));
  s.next.store(0, std::memory_order_relaxed);
  const uint64_t range = (s.gate.load() >> kRangeShift) + 1;
  s.gate.store(range << kRangeShift | kOpen);
  s.call();
  s.run_chunks();
  s.close_and_wait();
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
