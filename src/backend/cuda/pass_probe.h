// Changes that benchmarks and tests make to a pass; they reach it through bench_access.h.
#pragma once

#include "backend/cuda/runtime/device_memory.h"
#include "backend/cuda/workspace.h"

namespace nibble::cuda {

/// Device time of one replay, mean of `repeats` back to back, in us.
double replay_us(cudaGraphExec_t graph, int repeats, cudaStream_t stream);
/// The sum that passes of `rows` rows add up, see experts_met in bench_access.h.
int64_t experts_met(const Workspace& work, const MoeConfig& config, int32_t rows,
                    cudaStream_t stream);
/// Row `row` of the residual stream and of the next block's input becomes NaN.
void spoil_row(const Workspace& work, int64_t row, int64_t hidden, cudaStream_t stream);

}  // namespace nibble::cuda
