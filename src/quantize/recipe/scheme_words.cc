// The table of schemes.
#include "quantize/recipe/scheme_words.h"

#include <algorithm>

namespace nibble {
namespace {

constexpr SchemeWords kSchemes[] = {
    {{WeightFormat::nvfp4, ActivationFormat::high},
     "W4A16_NVFP4",
     "nvfp4-pack-quantized",
     "tensor_group",
     ""},
    {{WeightFormat::nvfp4, ActivationFormat::nvfp4},
     "NVFP4",
     "nvfp4-pack-quantized",
     "tensor_group",
     "tensor_group"},
    {{WeightFormat::fp8_tensor, ActivationFormat::fp8_tensor},
     "FP8",
     "float-quantized",
     "tensor",
     "tensor"},
    {{WeightFormat::fp8_tensor, ActivationFormat::fp8_token},
     "",
     "float-quantized",
     "tensor",
     "token"},
    {{WeightFormat::fp8_channel, ActivationFormat::fp8_token},
     "FP8_PER_CHANNEL_PER_TOKEN",
     "float-quantized",
     "channel",
     "token"},
    {{WeightFormat::fp8_block, ActivationFormat::fp8_group},
     "",
     "float-quantized",
     "block",
     "group"},
    {{WeightFormat::fp8_block, ActivationFormat::high},  // an embedding table
     "",
     "float-quantized",
     "block",
     ""},
};

}  // namespace

const SchemeWords* find_words(const QuantScheme& scheme) {
  const auto* found = std::ranges::find(kSchemes, scheme, &SchemeWords::scheme);
  return found == std::end(kSchemes) ? nullptr : found;
}

const SchemeWords& words(const QuantScheme& scheme) {
  const SchemeWords* found = find_words(scheme);
  CHECK(found != nullptr, "scheme ", static_cast<int>(scheme.weights), " ",
        static_cast<int>(scheme.activations));
  return *found;
}

int scheme_bits(const QuantScheme& scheme) { return scheme.weights == WeightFormat::nvfp4 ? 4 : 8; }

std::vector<SchemeUse> scheme_uses(const QuantDeclaration& declaration) {
  std::vector<SchemeUse> uses;
  for (const auto& module : declaration.quantized) {
    auto use = std::ranges::find(uses, module.scheme, &SchemeUse::scheme);
    if (use == uses.end()) use = uses.insert(uses.end(), SchemeUse{.scheme = module.scheme});
    use->modules.push_back(module.name);
  }
  return uses;
}

Json json_strings(const std::vector<std::string>& texts) {
  Json list{Json::Array()};
  for (const auto& text : texts) list.push_back(text);
  return list;
}

}  // namespace nibble
