// The rules of a recipe that give one scheme to some linears, as YAML, and the names that they
// speak of.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "quantize/recipe/quant_plan.h"

namespace nibble {

/// "q_proj" of "model.layers.3.self_attn.q_proj".
std::string_view last_part(std::string_view module);

/// Appends a rule for each linear, but one for all experts of a layer, to the YAML of a recipe.
void add_rules(const std::vector<const PlannedLinear*>& linears, const QuantScheme& scheme,
               std::string& text);

}  // namespace nibble
