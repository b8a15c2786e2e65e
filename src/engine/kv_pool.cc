// A free list and a flag per page.
#include "engine/kv_pool.h"

#include "base/check.h"

namespace nibble {

KvPool::KvPool(int32_t pages) : taken_(static_cast<size_t>(pages), 0) {
  for (int32_t page = pages - 1; page >= 0; --page) free_.push_back(page);
}

std::optional<std::vector<int32_t>> KvPool::allocate(int32_t count) {
  CHECK(count >= 0, "pages ", count);
  if (count > free_count()) return std::nullopt;
  std::vector<int32_t> pages;
  for (int32_t i = 0; i < count; ++i) {
    pages.push_back(free_.back());
    free_.pop_back();
    taken_[static_cast<size_t>(pages.back())] = 1;
  }
  return pages;
}

void KvPool::release(std::span<const int32_t> pages) {
  for (const int32_t page : pages) {
    CHECK(page >= 0 && page < size(), "page ", page, " of ", size());
    CHECK(taken_[static_cast<size_t>(page)] == 1, "page ", page, " is free already");
    taken_[static_cast<size_t>(page)] = 0;
    free_.push_back(page);
  }
}

void KvPool::check_integrity(std::span<const int32_t> in_use) const {
  std::vector<int> seen(taken_.size(), 0);
  for (const int32_t page : free_) {
    CHECK(taken_[static_cast<size_t>(page)] == 0, "page ", page, " is free and taken");
    ++seen[static_cast<size_t>(page)];
  }
  for (const int32_t page : in_use) {
    CHECK(taken_[static_cast<size_t>(page)] == 1, "page ", page, " is used and not taken");
    ++seen[static_cast<size_t>(page)];
  }
  for (size_t page = 0; page < seen.size(); ++page)
    CHECK(seen[page] == 1, "page ", page, " has ", seen[page], " owners");
}

}  // namespace nibble
