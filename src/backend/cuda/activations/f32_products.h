// `--activations f32`: products whose inputs are not rounded, for tests. The kernels of generation
// arithmetic as they are multiply each of an input's parts (kF32Parts), so this is their own error;
// only what they would round themselves (norms, SwiGLU, mixers) has kernels here. declared.h calls
// these.
#pragma once

#include "backend/cuda/context.h"

namespace nibble::cuda {

/// True if inputs are in parts: then no kernel may make its own.
bool in_f32(const Context& context);

/// x = norm(h), as args.hidden_out has it.
void norm_f32(const AddNormArgs& args, const Launcher& launcher);
/// Adds the parts of F16 and F32 tables that embed() left out, then computes the norm.
void finish_embed_f32(const Context& context, const EmbedArgs& args);

void linear_f32(const LinearArgs& args, const Launcher& launcher);
void experts_gate_up_f32(const Context& context, const ExpertArgs& args, const Launcher& launcher);
void experts_down_f32(const Context& context, const ExpertArgs& args, const Launcher& launcher);

}  // namespace nibble::cuda
