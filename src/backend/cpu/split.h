// Splits independent items over the threads only where the work outweighs waking them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "base/thread_pool.h"

namespace nibble::cpu {

/// Vector instructions below which a second thread does not pay (measured: bench/cpu/README.md).
inline constexpr int64_t kChunkCost = 4096;

/// task(begin, end) over chunks of [0, count); `cost` is vector instructions per item.
template <typename Task>
void split(ThreadPool& pool, int64_t count, int64_t cost, const Task& task) {
  const int64_t grain = std::max<int64_t>(1, kChunkCost / std::max<int64_t>(1, cost));
  const auto range = [&](size_t begin, size_t end) {
    task(static_cast<int64_t>(begin), static_cast<int64_t>(end));
  };
  pool.parallel_for(static_cast<size_t>(count), static_cast<size_t>(grain), std::cref(range));
}

}  // namespace nibble::cpu
