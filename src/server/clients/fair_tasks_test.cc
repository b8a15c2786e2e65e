// One client's tasks never hold up another's.
#include "server/clients/fair_tasks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>

#include "testing/soon.h"

namespace nibble {
namespace {

using namespace std::chrono_literals;

TEST(FairTasks, AClientHasOneAtATimeAndOthersRunBeside) {
  FairTasks tasks({.threads = 2, .waiting_max = 20, .waiting_of_a_client_max = 10});
  std::promise<void> let_go;
  const std::shared_future<void> gone = let_go.get_future().share();
  std::atomic<int> running = 0;
  std::atomic<int> most = 0;
  for (int i = 0; i < 6; ++i)
    ASSERT_TRUE(tasks.post(1, [&, gone] {
      most = std::max(most.load(), ++running);
      gone.wait();
      --running;
    }));
  std::promise<void> other;
  ASSERT_TRUE(tasks.post(2, [&] { other.set_value(); }));
  EXPECT_EQ(other.get_future().wait_for(testing::kPatience), std::future_status::ready);
  let_go.set_value();
  std::promise<void> last;
  ASSERT_TRUE(tasks.post(1, [&] { last.set_value(); }));
  EXPECT_EQ(last.get_future().wait_for(testing::kPatience), std::future_status::ready);
  EXPECT_EQ(most, 1);
}

TEST(FairTasks, ClientsTakeTurns) {
  std::string order;
  std::promise<void> begun;
  std::promise<void> let_go;
  std::promise<void> last;
  FairTasks tasks({.threads = 1, .waiting_max = 20, .waiting_of_a_client_max = 10});
  tasks.post(9, [&] {
    begun.set_value();
    let_go.get_future().wait();
  });
  begun.get_future().wait();
  for (const char name : {'a', 'a', 'a', 'b', 'c', 'b'})
    tasks.post(static_cast<uint64_t>(name), [&, name] {
      order += name;
      if (order.size() == 6) last.set_value();
    });
  let_go.set_value();
  ASSERT_EQ(last.get_future().wait_for(testing::kPatience), std::future_status::ready);
  EXPECT_EQ(order, "abcaba");
}

/// A test that stands still while the first task sleeps comes too late: once in a few tries it does
/// not.
TEST(FairTasks, WhatWaitsAtTheEndIsDropped) {
  bool ran = true;
  for (int i = 0; i < 20 && ran; ++i) {
    ran = false;
    std::promise<void> begun;
    FairTasks tasks({.threads = 1, .waiting_max = 3, .waiting_of_a_client_max = 2});
    tasks.post(1, [&] {
      begun.set_value();
      std::this_thread::sleep_for(100ms);
    });
    begun.get_future().wait();
    tasks.post(1, [&] { ran = true; });
  }
  EXPECT_FALSE(ran);
}

TEST(FairTasks, RefusesMoreThanItsRoom) {
  std::promise<void> let_go;
  FairTasks tasks({.threads = 1, .waiting_max = 3, .waiting_of_a_client_max = 2});
  std::promise<void> begun;
  tasks.post(1, [&] {
    begun.set_value();
    let_go.get_future().wait();
  });
  begun.get_future().wait();
  const auto nothing = [] {};
  EXPECT_TRUE(tasks.post(1, nothing));
  EXPECT_TRUE(tasks.post(1, nothing));
  EXPECT_FALSE(tasks.post(1, nothing));
  EXPECT_TRUE(tasks.post(2, nothing));
  EXPECT_FALSE(tasks.post(3, nothing));
  let_go.set_value();
}

}  // namespace
}  // namespace nibble
