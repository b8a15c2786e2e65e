// Sizes of a checkpoint's tensors as they are, and as a recipe would make them.
#pragma once

#include "checkpoint/checkpoint.h"
#include "cli/serving/model_loader.h"
#include "model/weights/synthetic_weights.h"
#include "plan/weight_tally.h"
#include "quantize/recipe/recipe.h"

namespace nibble {

/// Every linear of the model becomes what the recipe gives to it.
void apply_recipe(const Recipe& recipe, SyntheticWeights& weights);
/// The same of the MTP layer.
void apply_recipe(const Recipe& recipe, MtpSources& mtp);

/// Sizes of a file's own tensors or, with a recipe that `weights` were changed by, of those that
/// quantize would write in their place. Both must outlive the result.
FileBytes sizes_in(const Checkpoint& checkpoint, const Recipe* recipe);

/// Sizes in the memory of the CPU backend. Plain values have the type of the checkpoint's own;
/// without one BF16. All must outlive the result.
FileBytes sizes_on_cpu(const SyntheticWeights& weights, const Checkpoint* checkpoint);

/// The part of these that a server on a CPU reads in mapped files, by kind and format. `stored`:
/// the MTP layer of `weights` as the file has it; linears that are rounded as they are loaded, and
/// a head of the layer's own, are made and not read there.
std::vector<WeightRow> tally_mapped(const ModelRequest& request, SyntheticWeights weights,
                                    const std::optional<MtpSources>& stored,
                                    const Checkpoint* checkpoint);

/// Bytes beside the text model, by the names of the file.
OtherWeights others_of(const Checkpoint& checkpoint);

}  // namespace nibble
