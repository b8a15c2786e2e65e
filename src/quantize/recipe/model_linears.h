// Every linear of the text model, and of the MTP layer where that is bound, in fused groups: what
// recipes speak of.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "model/config/target_patterns.h"
#include "model/weights/weights.h"
#include "quantize/recipe/dialect.h"

namespace nibble {

/// Groups in model order; within a group all linears read the same input and are fused by engines.
/// A head tied to the embedding is not among them; the last group is the embedding table alone.
std::vector<std::vector<const LinearSource*>> fused_linears(const Weights& weights);

/// Binds a checkpoint, its MTP layer too if something of it is in fewer bits: one that is plain
/// throughout is copied, whatever it holds. Errors: those of Weights::bind.
Result<Weights> bind_linears(const Checkpoint& checkpoint, ModelConfig config);

/// A table is looked up, not multiplied with: no activations meet it.
bool is_embedding(std::string_view module);

/// "...layers.3.mlp.experts" of one of its linears, or empty for what is no expert.
std::string expert_list(std::string_view module);

/// "model.language_model.layers.3.mlp.experts.7.up_proj" -> "mlp.experts.up_proj", the same of the
/// MTP layer -> "mtp.mlp.experts.up_proj".
std::string linear_kind(std::string_view module);

/// The contents of a bound checkpoint as its config should state them: quantized linears with their
/// schemes, plain ones by name, experts that are all plain as "...mlp.experts". Other areas: below.
QuantDeclaration stored_declaration(const Weights& weights);

/// Adds what lies outside of the text model (vision tower, a plain MTP layer) to a declaration as
/// plain: its linears by the look of their tensors (a ".weight" of rank 2 that is no embedding
/// table), and its areas.
void declare_other_areas(const Checkpoint& checkpoint, const Weights& weights,
                         QuantDeclaration& declaration);

}  // namespace nibble
