// MemoryMaker: one walk over the buffers of a workspace makes them or only counts them, so that a
// plan and the backend cannot differ.
#pragma once

#include "backend/cpu/workspace.h"

namespace nibble::cpu {

enum class Memory : uint8_t { made, counted };

/// Gives buffers out, or nothing in their place, and sums their bytes.
class MemoryMaker {
 public:
  explicit MemoryMaker(Memory memory) : memory_(memory) {}
  Matrix matrix(int64_t rows, int64_t columns) {
    if (memory_ == Memory::counted) {
      bytes_ += Matrix::bytes_of(rows, columns);
      return {};
    }
    Matrix made(rows, columns);
    bytes_ += made.bytes();
    return made;
  }
  Buffer buffer(int64_t bytes) {
    bytes_ += bytes;
    return memory_ == Memory::made ? Buffer(bytes) : Buffer();
  }
  int64_t bytes() const { return bytes_; }

 private:
  Memory memory_;
  int64_t bytes_ = 0;
};

}  // namespace nibble::cpu
