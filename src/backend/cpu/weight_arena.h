// WeightArena: one block of memory for all packed weights of a model, on large pages where the
// system has them, so that neither loading nor reading pays for millions of small ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"

namespace nibble::cpu {

class WeightArena {
 public:
  WeightArena() = default;
  /// Zeroed memory of `bytes`. Errors: no_memory.
  static Result<WeightArena> reserve(int64_t bytes);
  WeightArena(WeightArena&& other) noexcept;
  WeightArena& operator=(WeightArena&& other) noexcept;
  ~WeightArena();

  /// The next `bytes` of it, 64-byte aligned. They must fit.
  std::span<std::byte> take(int64_t bytes);
  int64_t bytes() const { return bytes_; }

  /// The room that a span of `bytes` takes in an arena.
  static int64_t room(int64_t bytes) { return (bytes + 63) / 64 * 64; }

 private:
  std::byte* memory_ = nullptr;
  int64_t bytes_ = 0;
  int64_t taken_ = 0;
};

}  // namespace nibble::cpu
