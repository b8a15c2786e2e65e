// linear() for matrices whose inputs are resident in shared memory (resident.cuh). Each makes all
// outputs of `args` by a plan of select_linear() with its kernel.
#pragma once

#include "backend/cuda/ops/linear/linear_select.h"

namespace nibble::cuda {

/// Two rows and more.
void linear_resident(const LinearArgs& args, const LinearPlan& plan, const Launcher& launcher);
/// Many rows and many tiles.
void linear_tiles(const LinearArgs& args, const LinearPlan& plan, const Launcher& launcher);
/// A single row, which may be the norm of another (LinearArgs::norm).
void linear_row(const LinearArgs& args, const LinearPlan& plan, const Launcher& launcher);
/// Several rows that are norms.
void linear_norm(const LinearArgs& args, const LinearPlan& plan, const Launcher& launcher);

}  // namespace nibble::cuda
