// linear() on cards with wgmma (compute capability 9.0), for a matrix with as many rows as a head,
// for rows too long for shared memory, and for a dense MLP's gate and up; linear_select.h chooses.
// Numbers differ from those of the portable kernels, so the choice depends on the product and the
// card alone.
#pragma once

#include <array>

#include "backend/cuda/ops/linear/linear_select.h"

namespace nibble::cuda {

/// Returns how many clusters of kClusterSizes blocks run on a device at once, when each block has
/// the shared memory of an SM (Architecture::clusters). Call it only where the device has wgmma.
std::array<int32_t, 3> stream_clusters(DeviceContext& device);

/// Computes all outputs of `args`, by a plan of select_linear() or select_stream().
void linear_stream(const LinearArgs& args, const LinearPlan& plan, const Launcher& launcher);
/// Computes act = SwiGLU of gate and up of a dense MLP, by a plan of select_gate_up() or
/// select_stream().
void gate_up_stream(const ExpertArgs& args, const LinearPlan& plan, const Launcher& launcher);

}  // namespace nibble::cuda
