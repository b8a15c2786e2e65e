// The parts that the delta-net prefill kernels share: their arguments and the copies of tiles.
#pragma once

#include "backend/cuda/ops/delta_net/delta_select.h"
#include "backend/cuda/ptx/device_math.cuh"
#include "backend/cuda/ptx/shared_tile.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/runtime/with_value.h"

namespace nibble::cuda {

inline constexpr int kChunk = kDeltaChunkTokens;
static_assert(kChunk == kTileLines);
inline constexpr int kDeltaThreads = 128;  // within a chunk, and per row

__host__ __device__ inline int channels_of(const DeltaShape& s) {
  return 2 * s.k_heads * s.k_dim + s.v_heads * s.v_dim;
}

struct DeltaArgs {
  DeltaPrefill in;  // chunks and runs from the group's first on
  DeltaGroup group;
  DeltaWorkspace work;
};

void launch_delta_inputs(const DeltaArgs& args, const Launcher& launcher);
void launch_delta_outputs(const DeltaArgs& args, const Launcher& launcher);
void launch_delta_keep(const DeltaPrefill& prefill, const Launcher& launcher);
void launch_delta_within(const DeltaArgs& args, const Launcher& launcher);
void launch_delta_along(const DeltaArgs& args, const Launcher& launcher);
void prepare_delta_within(const Launcher& launcher);
void prepare_delta_along(const Launcher& launcher);

}  // namespace nibble::cuda
