// Shares of a budget: their bounds, their growth, many threads at once.
#include "server/http/byte_budget.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace nibble {
namespace {

TEST(ByteBudget, SharesTakeAndGiveBack) {
  const auto budget = std::make_shared<ByteBudget>(100);
  ByteBudget::Share first(budget);
  EXPECT_FALSE(first.grow_to(101));
  EXPECT_EQ(budget->taken(), 0U);
  EXPECT_TRUE(first.grow_to(60));
  EXPECT_TRUE(first.grow_to(50));  // it never shrinks
  EXPECT_EQ(budget->taken(), 60U);
  {
    ByteBudget::Share second(budget);
    EXPECT_FALSE(second.grow_to(41));
    EXPECT_TRUE(second.grow_to(40));
    EXPECT_FALSE(first.grow_to(61));
    EXPECT_EQ(budget->taken(), 100U);
  }
  EXPECT_TRUE(first.grow_to(100));
  EXPECT_FALSE(first.grow_to(SIZE_MAX));
  EXPECT_EQ(budget->taken(), 100U);
}

TEST(ByteBudget, PartsAreCountedInTheWhole) {
  const auto whole = std::make_shared<ByteBudget>(100);
  const auto part = std::make_shared<ByteBudget>(60, whole);
  ByteBudget::Share outside(whole);
  EXPECT_TRUE(outside.grow_to(50));
  {
    ByteBudget::Share share(part);
    EXPECT_FALSE(share.grow_to(51));  // the whole has less
    EXPECT_EQ(part->taken(), 0U);
    EXPECT_TRUE(share.grow_to(40));
    EXPECT_EQ(part->taken(), 40U);
    EXPECT_EQ(whole->taken(), 90U);
  }
  EXPECT_EQ(part->taken(), 0U);
  EXPECT_EQ(whole->taken(), 50U);
  ByteBudget::Share share(std::make_shared<ByteBudget>(10, whole));
  EXPECT_FALSE(share.grow_to(11));  // the part has less
  EXPECT_EQ(whole->taken(), 50U);
}

TEST(ByteBudget, NeverMoreThanItsBytesAtOnce) {
  const auto budget = std::make_shared<ByteBudget>(1000);
  std::vector<std::thread> threads;
  std::atomic<int> granted = 0;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 2000; ++round) {
        ByteBudget::Share share(budget);
        if (share.grow_to(400)) ++granted;
        EXPECT_LE(budget->taken(), 1000U);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(granted, 0);
  EXPECT_EQ(budget->taken(), 0U);
}

}  // namespace
}  // namespace nibble
