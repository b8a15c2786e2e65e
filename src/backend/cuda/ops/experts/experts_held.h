// The experts' kernels that hold their inputs on chip (held.cuh); moe.cu chooses.
#pragma once

#include "backend/cuda/kernels.h"

namespace nibble::cuda {

enum class ExpertPart : uint8_t { gate_up, down };

/// NVFP4, or FP8 without block factors, of up to 8 slices; routed and shared experts alike.
bool experts_held(const ExpertArgs& args);
void launch_experts_held(ExpertPart part, const ExpertArgs& args, const Launcher& launcher);
/// gate_up of a single row with its norm and choice, and down with the weighted sum: h += sum.
/// experts_take_a_row() must hold.
void launch_row_gate_up(const ExpertArgs& args, const Launcher& launcher);
void launch_down_sum(const ExpertArgs& args, const Launcher& launcher);

}  // namespace nibble::cuda
