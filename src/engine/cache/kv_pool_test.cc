// Holders of pages: who may give one back, and what a marked page counts for.
#include "engine/cache/kv_pool.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

TEST(KvPoolReferences, LastHolderGivesThePageBack) {
  KvPool pool(3);
  const int32_t page = pool.allocate(1)->front();
  pool.retain(page);
  EXPECT_EQ(pool.references(page), 2);
  pool.check_integrity(std::vector<int32_t>{page, page});
  pool.release(page);
  EXPECT_EQ(pool.free_count(), 2);
  pool.release(page);
  EXPECT_EQ(pool.free_count(), 3);
  EXPECT_EQ(pool.references(page), 0);
}

TEST(KvPoolReferences, MarkedPagesCountWhileTheyHaveOneHolder) {
  KvPool pool(2);
  const int32_t page = pool.allocate(1)->front();
  pool.mark(page, KvPool::Reclaim::yes);
  EXPECT_EQ(pool.reclaimable_count(), 1);
  pool.retain(page);
  EXPECT_EQ(pool.reclaimable_count(), 0);
  pool.release(page);
  EXPECT_EQ(pool.reclaimable_count(), 1);
  pool.check_integrity(std::vector<int32_t>{page});
  pool.mark(page, KvPool::Reclaim::no);
  EXPECT_EQ(pool.reclaimable_count(), 0);
}

TEST(KvPoolReferencesDeathTest, NoticesWrongCounts) {
  KvPool pool(2);
  const int32_t page = pool.allocate(1)->front();
  pool.retain(page);
  EXPECT_DEATH(pool.check_integrity(std::vector<int32_t>{page}), "has 1 owners and 2 references");
  EXPECT_DEATH(pool.retain(1 - page), "is free and cannot be retained");
  pool.release(page);
  pool.mark(page, KvPool::Reclaim::yes);
  EXPECT_DEATH(pool.release(page), "by another than its owner");
}

}  // namespace
}  // namespace nibble
