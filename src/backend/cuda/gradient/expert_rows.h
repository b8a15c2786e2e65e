// ExpertRows: the rows of a pass sorted by the experts that they chose, on the host.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cuda/ops/linear/prefill_gemm.h"

namespace nibble::cuda {

/// "Assignments" are the rows of expert 0, ascending, then those of expert 1, and so on.
struct ExpertRows {
  std::vector<int32_t> begin;     // [experts + 1] first assignment of each
  std::vector<int32_t> row;       // [assignments] of the pass
  std::vector<int32_t> expert;    // [assignments]
  std::vector<float> weight;      // [assignments]
  std::vector<int32_t> slots;     // [rows, top_k] a row's assignments, ascending
  std::vector<ExpertTile> tiles;  // of all experts

  int32_t count() const { return static_cast<int32_t>(row.size()); }
};

/// chosen and weights: [rows, top_k]; no row has an expert twice.
ExpertRows sort_by_expert(std::span<const int32_t> chosen, std::span<const float> weights,
                          int32_t top_k, int32_t experts);

}  // namespace nibble::cuda
