// `--activations f32`: products whose inputs are not rounded, for tests. The kernels of generation
// arithmetic as they are multiply each of an input's parts (kF32Parts), so this is their own error;
// only what they would round themselves (norms, SwiGLU, mixers) has kernels here. declared.h calls
// these.
#pragma once

#include "backend/cuda/context.h"

namespace nibble::cuda {

/// Whether inputs are in parts: then no kernel may make its own.
bool in_f32(const Context& context);
/// What the workspace needs for it, which has kF32Parts parts.
Result<void> reserve_f32(const ModelConfig& config, int32_t rows, Workspace& work);

/// x = norm(h), as args.hidden_out has it.
void norm_f32(const AddNormArgs& args, const Launcher& launcher);
/// What F16 and F32 tables have beside the part that embed() gave, then the norm.
void finish_embed_f32(const Context& context, const EmbedArgs& args);

void linear_f32(const LinearArgs& args, const Launcher& launcher);
void experts_gate_up_f32(const Context& context, const ExpertArgs& args, const Launcher& launcher);
void experts_down_f32(const Context& context, const ExpertArgs& args, const Launcher& launcher);

}  // namespace nibble::cuda
