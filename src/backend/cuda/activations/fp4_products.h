// The products of blocks whose weights and inputs are both multiplied as 4-bit codes (ops/fp4):
// what declared.h calls where the card does that. Inputs are rounded as there, and stay codes.
#pragma once

#include "backend/cuda/context.h"
#include "backend/cuda/ops/fp4/fp4_select.h"
#include "base/result.h"

namespace nibble::cuda {

/// Lets `launcher` make products of 4-bit codes in software. Errors: unsupported for activations
/// other than declared, and for a card that has the instruction.
Result<void> emulate_fp4(Activations activations, Launcher& launcher);

/// True if the products of `weight` are made of 4-bit codes.
bool in_fp4(const Context& context, const DeviceLinear& weight);
/// The same of gate and up, whose results are joined.
bool in_fp4(const Context& context, const DeviceLinear& gate, const DeviceLinear& up);

/// Makes rows for one matrix in the workspace; they are valid until the next call of anything that
/// rounds. args.out is set here.
Fp4Rows make_fp4_rows(const Context& context, const QuantizeRows& args, const Launcher& launcher);

// These are for generation arithmetic; args.count is 1.
void linear_fp4(const Context& context, const LinearArgs& args, const Launcher& launcher);
/// Gate and up, and down, of the routed experts alone, and of the shared expert or dense matrix.
void routed_gate_up_fp4(const Context& context, const ExpertArgs& args, const Launcher& launcher);
void shared_gate_up_fp4(const Context& context, const ExpertArgs& args, const Launcher& launcher);
void routed_down_fp4(const Context& context, const ExpertArgs& args, const Launcher& launcher);
void shared_down_fp4(const Context& context, const ExpertArgs& args, const Launcher& launcher);

}  // namespace nibble::cuda
