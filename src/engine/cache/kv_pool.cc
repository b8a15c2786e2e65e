// A free list and a count of holders per page.
#include "engine/cache/kv_pool.h"

#include "base/check.h"

namespace nibble {

KvPool::KvPool(int32_t pages)
    : references_(static_cast<size_t>(pages), 0), marked_(static_cast<size_t>(pages), 0) {
  for (int32_t page = pages - 1; page >= 0; --page) free_.push_back(page);
}

size_t KvPool::index(int32_t page) const {
  CHECK(page >= 0 && page < size(), "page ", page, " of ", size());
  return static_cast<size_t>(page);
}

std::optional<std::vector<int32_t>> KvPool::allocate(int32_t count) {
  CHECK(count >= 0, "pages ", count);
  if (count > free_count()) return std::nullopt;
  std::vector<int32_t> pages;
  for (int32_t i = 0; i < count; ++i) {
    pages.push_back(free_.back());
    free_.pop_back();
    references_[index(pages.back())] = 1;
  }
  return pages;
}

void KvPool::retain(int32_t page) {
  int32_t& references = references_[index(page)];
  CHECK(references > 0, "page ", page, " is free and cannot be retained");
  if (references == 1 && marked_[index(page)] != 0) --reclaimable_count_;
  ++references;
}

void KvPool::release(int32_t page) {
  int32_t& references = references_[index(page)];
  CHECK(references > 0, "page ", page, " is free already");
  --references;
  if (references == 1 && marked_[index(page)] != 0) ++reclaimable_count_;
  if (references > 0) return;
  CHECK(marked_[index(page)] == 0, "page ", page, " was released by another than its owner");
  free_.push_back(page);
}

void KvPool::release(std::span<const int32_t> pages) {
  for (const int32_t page : pages) release(page);
}

void KvPool::mark(int32_t page, Reclaim reclaim) {
  CHECK(references(page) > 0, "page ", page, " is free and cannot be marked");
  uint8_t& marked = marked_[index(page)];
  const uint8_t wanted = reclaim == Reclaim::yes ? 1 : 0;
  if (references(page) == 1) reclaimable_count_ += wanted - marked;
  marked = wanted;
}

KvPool::Reclaim KvPool::marked(int32_t page) const {
  return marked_[index(page)] != 0 ? Reclaim::yes : Reclaim::no;
}

void KvPool::check_integrity(std::span<const int32_t> in_use) const {
  std::vector<int32_t> owners(references_.size(), 0);
  std::vector<int32_t> seen_free(references_.size(), 0);
  for (const int32_t page : free_) {
    CHECK(references(page) == 0, "page ", page, " is free and taken");
    CHECK(++seen_free[index(page)] == 1, "page ", page, " is free twice");
  }
  for (const int32_t page : in_use) {
    CHECK(references(page) > 0, "page ", page, " is used and not taken");
    ++owners[index(page)];
  }
  int32_t reclaimable = 0;
  for (int32_t page = 0; page < size(); ++page) {
    CHECK(owners[index(page)] == references(page), "page ", page, " has ", owners[index(page)],
          " owners and ", references(page), " references");
    CHECK(references(page) > 0 || seen_free[index(page)] == 1, "page ", page, " is lost");
    if (marked(page) == Reclaim::yes && references(page) == 1) ++reclaimable;
  }
  CHECK(reclaimable == reclaimable_count_, "reclaimable ", reclaimable, " and counted ",
        reclaimable_count_);
}

}  // namespace nibble
