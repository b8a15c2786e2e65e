// VisionMemory: the workspace of the vision tower, for the frames that are encoded together, and
// the rows that it made of media. Keys and values lie in pages as attention reads them:
//   [head]{ keys [head_dim][64], values [64][head_dim] }
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cpu/workspace.h"
#include "model/backend.h"
#include "model/vision.h"

namespace nibble::cpu {

struct VisionMemory {
  Matrix hidden;    // [N, hidden], the residual stream of N patches
  Matrix cos, sin;  // [N, head_dim / 2]
  Matrix q;         // [N, hidden]
  Buffer pages;     // [N / kVisionPage] pages of keys and values
  Matrix rows;      // [media rows, out]
  // These are of one piece.
  Matrix levels;                  // [P, patch_values]
  Matrix normed;                  // [P, hidden]
  Matrix qkv;                     // [P, 3 hidden]
  Matrix attention_out;           // [P, hidden]
  Matrix inner;                   // [P, inner]
  Matrix merged, merged_inner;    // [P / merge^2, merged_width]
  Matrix out;                     // [P / merge^2, out]
  std::vector<int32_t> page_ids;  // 0, 1, 2, ...

  int64_t page_floats = 0;
  int64_t bytes = 0;  // sum of all above, by the buffers themselves

  VisionMemory() = default;
  /// Nothing where `sizes` has no media rows.
  VisionMemory(const VisionConfig& config, const PoolSizes& sizes);
  /// Bytes that such a memory takes; makes nothing.
  static int64_t bytes_of(const VisionConfig& config, const PoolSizes& sizes);

  float* page(int64_t index) {
    return reinterpret_cast<float*>(pages.data()) + index * page_floats;
  }
};

}  // namespace nibble::cpu
