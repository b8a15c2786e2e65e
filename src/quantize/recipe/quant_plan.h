// QuantPlan: what a recipe makes of a checkpoint, decided before any weight is read: which linears
// are rounded together, which tensors are copied, what the output holds, what it costs.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_writer.h"
#include "model/weights/weights.h"
#include "quantize/recipe/dialect.h"
#include "quantize/recipe/recipe.h"

namespace nibble {

struct PlannedLinear {
  LinearSource source;  // where it is, unquantized
  std::string kind;     // module name without layer and expert numbers: "mlp.experts.gate_proj"
  RecipeScheme becomes;
};

/// Linears that inference engines fuse into one matrix, and so must share one global scale: q/k/v,
/// gate/up, the delta net's qkv/z and b/a; or a single linear.
struct FusedGroup {
  std::vector<PlannedLinear> linears;
  /// The bytes of its source values.
  int64_t bytes = 0;
};

struct QuantPlan {
  Dialect dialect = Dialect::compressed_tensors;
  std::vector<FusedGroup> rounded;         // in the order of the source files
  std::vector<PlannedLinear> separated;    // stay plain, but leave a fused expert tensor
  std::vector<const TensorEntry*> copied;  // byte for byte; entries of the checkpoint
  std::vector<TensorPlan> outputs;
  QuantDeclaration declaration;
  int64_t bytes_in = 0;  // of tensors
  int64_t bytes_out = 0;

  int64_t largest_group_bytes() const;
};

/// This is what the last rule that takes a linear gives to it, in the words of the dialect; plain
/// without one. Nothing is checked: that is plan_quantization.
RecipeScheme recipe_scheme(const Recipe& recipe, const std::string& module, Dialect dialect);

/// Errors: unsupported for a checkpoint that is already quantized or a linear that cannot become
/// NVFP4; invalid_argument for a rule that matches nothing or splits a fused group.
/// The checkpoint must outlive the plan.
Result<QuantPlan> plan_quantization(const Checkpoint& checkpoint, const Recipe& recipe,
                                    Dialect dialect);

}  // namespace nibble
