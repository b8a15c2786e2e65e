// linear() for matrices whose inputs are resident in shared memory (resident.cuh). Each makes all
// outputs of `args` by a plan of select_linear() with its kernel.
#pragma once

#include "backend/cuda/ops/linear/linear_select.h"

namespace nibble::cuda {

/// Computes two rows and more. Leading outputs share one format; BF16 outputs, if any, come last.
void linear_resident(const LinearArgs& args, const LinearPlan& plan, const Launcher& launcher);
/// Computes many rows of many tiles.
void linear_tiles(const LinearArgs& args, const LinearPlan& plan, const Launcher& launcher);
/// Computes a single row, which may be the norm of another (LinearArgs::norm).
void linear_row(const LinearArgs& args, const LinearPlan& plan, const Launcher& launcher);
/// Computes several rows that are norms.
void linear_norm(const LinearArgs& args, const LinearPlan& plan, const Launcher& launcher);

}  // namespace nibble::cuda
