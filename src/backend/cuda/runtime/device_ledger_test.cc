// Bytes taken and given back, and the limit.
#include "backend/cuda/runtime/device_ledger.h"

#include <gtest/gtest.h>

namespace nibble::cuda {
namespace {

TEST(DeviceLedgerTest, CountsWhatIsTakenAndGivenBack) {
  DeviceLedger ledger;
  EXPECT_TRUE(ledger.take(100));
  EXPECT_TRUE(ledger.take(50));
  ledger.give(100);
  EXPECT_EQ(ledger.used_bytes(), 50);
  EXPECT_EQ(ledger.allocations(), 2);
}

TEST(DeviceLedgerTest, RefusesWhatWouldPassTheLimitAndDoesNotCountIt) {
  DeviceLedger ledger;
  ledger.limit(100);
  EXPECT_TRUE(ledger.take(60));
  EXPECT_FALSE(ledger.take(41));
  EXPECT_EQ(ledger.used_bytes(), 60);
  EXPECT_EQ(ledger.allocations(), 1);
  EXPECT_TRUE(ledger.take(40));
  ledger.give(60);
  EXPECT_TRUE(ledger.take(60));
  ledger.limit(0);
  EXPECT_TRUE(ledger.take(1000));
}

/// Two cards of one process have an account each.
TEST(DeviceLedgerTest, KnowsNothingOfAnother) {
  DeviceLedger first;
  DeviceLedger second;
  first.limit(10);
  EXPECT_FALSE(first.take(11));
  EXPECT_TRUE(second.take(11));
  EXPECT_EQ(first.used_bytes(), 0);
}

}  // namespace
}  // namespace nibble::cuda
