// ThreadPool: every index exactly once, for many sizes, again and again.
#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace nibble {
namespace {

TEST(ThreadPool, CoversEveryIndexOnce) {
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (size_t count = 0; count < 300; ++count) {
      std::vector<std::atomic<int>> hits(count);
      pool.parallel_for(count, 1 + count % 7, [&](size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i) hits[i].fetch_add(1);
      });
      for (const auto& hit : hits) ASSERT_EQ(hit.load(), 1);
    }
  }
}

TEST(ThreadPool, WakesSleepersAgainAndAgain) {
  ThreadPool pool(3);
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> sum = 0;
    pool.parallel_for(64, 1, [&](size_t begin, size_t end) {
      sum += static_cast<int>(end - begin);
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    });
    EXPECT_EQ(sum.load(), 64);
    if (round % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

TEST(ThreadPool, RangesMayShareMemoryInTurn) {
  ThreadPool pool(4);
  std::vector<size_t> values(1000);  // plain memory: one range sees what the last one wrote
  for (size_t round = 0; round < 300; ++round)
    pool.parallel_for(values.size(), 1, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        ASSERT_EQ(values[i], round);
        ++values[i];
      }
    });
}

TEST(ThreadPool, ChunksOfALongRangeBecomeSmaller) {
  constexpr size_t kCount = 8192;
  ThreadPool pool(2);
  std::mutex mutex;
  std::map<size_t, size_t> chunks;  // from where to where
  pool.parallel_for(kCount, 1, [&](size_t begin, size_t end) {
    const std::lock_guard lock(mutex);
    chunks[begin] = end;
  });
  size_t next = 0;
  size_t before = kCount / 8;
  for (const auto& [begin, end] : chunks) {
    EXPECT_EQ(begin, next);
    EXPECT_LE(end - begin, before);
    EXPECT_GE(end - begin, std::min(kCount / 64, kCount - begin));
    before = end - begin;
    next = end;
  }
  EXPECT_EQ(next, kCount);
  EXPECT_LE(before, kCount / 64);
}

TEST(ThreadPool, EndsWhileWorkersSpinOrSleep) {
  for (int round = 0; round < 200; ++round) {
    ThreadPool pool(3);
    if (round % 2 == 0) pool.parallel_for(10, 1, [](size_t, size_t) {});
    if (round % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace
}  // namespace nibble
