// The words both dialects have for a quantization scheme, and which modules use which. For the
// files that write config blocks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "quantize/recipe/dialect.h"

namespace nibble {

/// A scheme in the words of both dialects. Block-wise FP8 can be said in one of them only.
struct SchemeWords {
  QuantScheme scheme;
  std::string_view modelopt_algorithm;  // empty: cannot be said
  std::string_view format;              // of compressed-tensors
  std::string_view weight_strategy;
  std::string_view activation_strategy;  // empty: no quantized activations
};

/// nullptr for a scheme that neither dialect has.
const SchemeWords* find_words(const QuantScheme& scheme);
/// An unknown scheme is a CHECK.
const SchemeWords& words(const QuantScheme& scheme);
/// The bits of a weight: 4 or 8.
int scheme_bits(const QuantScheme& scheme);

/// One use of a scheme, in order of first appearance.
struct SchemeUse {
  QuantScheme scheme;
  std::vector<std::string> modules;
};

std::vector<SchemeUse> scheme_uses(const QuantDeclaration& declaration);

Json json_strings(const std::vector<std::string>& texts);

Json compressed_tensors_config(const QuantDeclaration& declaration);
Json modelopt_config(const QuantDeclaration& declaration);

}  // namespace nibble
