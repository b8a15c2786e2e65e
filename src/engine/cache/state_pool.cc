// A free list and a flag per slot.
#include "engine/cache/state_pool.h"

#include "base/check.h"

namespace nibble {

StatePool::StatePool(int32_t slots) : taken_(static_cast<size_t>(slots), 0) {
  for (int32_t slot = slots - 1; slot >= 0; --slot) free_.push_back(slot);
}

std::optional<int32_t> StatePool::allocate() {
  if (free_.empty()) return std::nullopt;
  const int32_t slot = free_.back();
  free_.pop_back();
  taken_[static_cast<size_t>(slot)] = 1;
  return slot;
}

void StatePool::release(int32_t slot) {
  CHECK(slot >= 0 && slot < size(), "slot ", slot, " of ", size());
  CHECK(taken_[static_cast<size_t>(slot)] == 1, "slot ", slot, " is free already");
  taken_[static_cast<size_t>(slot)] = 0;
  free_.push_back(slot);
}

void StatePool::check_integrity(std::span<const int32_t> in_use) const {
  std::vector<int> seen(taken_.size(), 0);
  for (const int32_t slot : free_) {
    CHECK(taken_[static_cast<size_t>(slot)] == 0, "slot ", slot, " is free and taken");
    ++seen[static_cast<size_t>(slot)];
  }
  for (const int32_t slot : in_use) {
    CHECK(taken_[static_cast<size_t>(slot)] == 1, "slot ", slot, " is used and not taken");
    ++seen[static_cast<size_t>(slot)];
  }
  for (size_t slot = 0; slot < seen.size(); ++slot)
    CHECK(seen[slot] == 1, "slot ", slot, " has ", seen[slot], " owners");
}

}  // namespace nibble
