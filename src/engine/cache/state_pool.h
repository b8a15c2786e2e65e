// StatePool: which slots of recurrent state are free. Ids only; the bytes belong to the backend.
// A slot holds the recurrent and convolution state of one sequence, over all delta-net layers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace nibble {

class StatePool {
 public:
  explicit StatePool(int32_t slots);

  int32_t size() const { return static_cast<int32_t>(taken_.size()); }
  int32_t free_count() const { return static_cast<int32_t>(free_.size()); }

  bool taken(int32_t slot) const { return taken_[static_cast<size_t>(slot)] != 0; }

  std::optional<int32_t> allocate();
  /// The slot must be taken.
  void release(int32_t slot);

  /// CHECKs that every slot is either free once or taken, and that `in_use` is exactly the taken.
  void check_integrity(std::span<const int32_t> in_use) const;

 private:
  std::vector<int32_t> free_;  // last in, first out
  std::vector<uint8_t> taken_;
};

}  // namespace nibble
