// The passes of generated tokens that are recorded, and the memory that recordings take. It has no
// CUDA headers: `nibble plan` asks the same functions as the backend.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cuda/batch_view.h"
#include "model/backend.h"
#include "model/config/config.h"

namespace nibble::cuda {

/// Numbers of rows that may be recorded, ascending; a batch runs on the next larger one.
std::span<const int32_t> recordable_rows();
/// The first of these, as many as the sequences of `sizes` need and its rows allow.
std::span<const int32_t> recorded_rows(const ModelConfig& config, const PoolSizes& sizes);
/// The extents of all passes that are recorded: one row a sequence for each of recorded_rows(); and,
/// with PoolSizes::replay_rows, passes that replay, for powers of two of sequences, with 1, 2, 4 ...
/// and replay_rows rows a sequence.
std::vector<Extent> recorded_extents(const ModelConfig& config, const PoolSizes& sizes);
/// The numbers of sequences whose steps of drafts are recorded; none without a layer that drafts.
std::vector<int32_t> recorded_drafts(const ModelConfig& config, const PoolSizes& sizes);
/// An upper bound of the bytes that these recordings and the driver's rounding of small buffers
/// take.
int64_t recorded_bytes(const ModelConfig& config, const PoolSizes& sizes);

}  // namespace nibble::cuda
