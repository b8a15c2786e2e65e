// The experts' kernels that hold their inputs on chip (resident.cuh), by plans of experts_select.h.
#pragma once

#include "backend/cuda/ops/experts/experts_select.h"

namespace nibble::cuda {

void launch_experts_resident(ExpertPart part, const ExpertArgs& args, const ExpertsPlan& plan,
                             const Launcher& launcher);
/// gate_up of a single row with its norm and choice, and down with the weighted sum: h += sum.
/// experts_take_a_row() must hold.
void launch_row_gate_up(const ExpertArgs& args, const Launcher& launcher);
void launch_down_sum(const ExpertArgs& args, const Launcher& launcher);

}  // namespace nibble::cuda
