// These functions are for benchmarks and tests only: they leave out parts of a pass one by one,
// tell which experts a pass chose, and put NaN where a broken kernel would leave it.
#pragma once

#include <cstdint>
#include <functional>

#include "backend/cuda/batch_view.h"
#include "backend/cuda/cuda_backend.h"

namespace nibble::cuda {

/// Passes leave out these steps after the next reserve(): bit s is Step s. Both need a backend of
/// make_cuda_backend or make_random_cuda_backend.
void skip_steps(Backend& backend, uint32_t steps);
/// Experts with rows, added up over the layers of all passes of as many rows as the last one. It
/// counts from any number: only differences between passes of one size mean something.
int64_t experts_met(Backend& backend);
/// Device time of the recorded pass of that extent, mean of `repeats` back to back, in us.
double recorded_pass_us(Backend& backend, const Extent& extent, int repeats);

/// The function is called after each block of a pass with the block's number: 0 is the embedding,
/// then there are two a layer. While there is one, no pass runs recorded.
using BlockWatch = std::function<void(const Batch& batch, int block)>;
void watch_blocks(Backend& backend, BlockWatch watch);
/// Sets the residual stream of a row of the batch to NaN; to be called from a BlockWatch.
void spoil_row(Backend& backend, int32_t row);

}  // namespace nibble::cuda
