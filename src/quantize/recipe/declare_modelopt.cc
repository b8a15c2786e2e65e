// quantization_config and hf_quant_config.json as ModelOpt has them. Read for it: Model-Optimizer's
// convert_hf_config.py (0.46), vLLM's reader.
#include <map>
#include <set>

#include "quantize/recipe/scheme_words.h"

namespace nibble {
namespace {

Json modelopt_group(const QuantScheme& scheme, const std::vector<std::string>& target_list) {
  Json side;
  side.set("dynamic", false);
  side.set("num_bits", scheme_bits(scheme));
  side.set("type", "float");
  if (scheme_bits(scheme) == 4) side.set("group_size", kNvfp4Group);
  Json group;
  if (scheme.activations != ActivationFormat::high) group.set("input_activations", side);
  if (scheme.weights == WeightFormat::fp8_channel) side.set("strategy", "channel");
  group.set("weights", side);
  group.set("targets", json_strings(target_list));
  return group;
}

/// ModelOpt names the experts of a layer once, as "...mlp.experts", if they agree.
std::vector<std::string> merged_experts(const std::vector<std::string>& modules,
                                        const std::set<std::string>& contested) {
  std::vector<std::string> out;
  for (const auto& module : modules) {
    const size_t at = module.find(".experts.");
    std::string name = module;
    if (at != std::string::npos && !contested.contains(module.substr(0, at + 8)))
      name = module.substr(0, at + 8);
    if (out.empty() || out.back() != name) out.push_back(name);
  }
  return out;
}

/// Expert lists of which not every linear has the same scheme.
std::set<std::string> contested_experts(const std::vector<SchemeUse>& uses,
                                        const QuantDeclaration& declaration) {
  std::map<std::string, std::set<size_t>> users;
  const auto note = [&](const std::string& module, size_t user) {
    const size_t at = module.find(".experts.");
    if (at != std::string::npos) users[module.substr(0, at + 8)].insert(user);
  };
  for (size_t i = 0; i < uses.size(); ++i)
    for (const auto& module : uses[i].modules) note(module, i);
  for (const auto& module : declaration.plain) note(module, uses.size());
  std::set<std::string> out;
  for (const auto& [name, by] : users)
    if (by.size() > 1) out.insert(name);
  return out;
}

std::vector<std::string> modelopt_exclude(const QuantDeclaration& declaration) {
  std::vector<std::string> out = declaration.plain;
  if (!declaration.vision_prefix.empty()) out.push_back(declaration.vision_prefix + "*");
  if (declaration.has_mtp) out.emplace_back("mtp*");
  return out;
}

Json producer() {
  Json who;
  who.set("name", "nibble");
  who.set("version", NIBBLE_VERSION);
  return who;
}

/// {module: {quant_algo, group_size}} of a mixed checkpoint.
Json quantized_layers(const std::vector<SchemeUse>& uses, const QuantDeclaration& declaration) {
  const auto contested = contested_experts(uses, declaration);
  Json layers{Json::Object()};
  for (const auto& use : uses) {
    for (const auto& module : merged_experts(use.modules, contested)) {
      Json layer;
      layer.set("quant_algo", words(use.scheme).modelopt_algorithm);
      if (scheme_bits(use.scheme) == 4) layer.set("group_size", kNvfp4Group);
      layers.as_object().push_back({module, std::move(layer)});
    }
  }
  return layers;
}

}  // namespace

Json modelopt_config(const QuantDeclaration& declaration) {
  const auto uses = scheme_uses(declaration);
  const auto contested = contested_experts(uses, declaration);
  Json groups{Json::Object()};
  for (size_t i = 0; i < uses.size(); ++i)
    groups.set(concat("group_", i),
               modelopt_group(uses[i].scheme, uses.size() == 1
                                                  ? std::vector<std::string>{"Linear"}
                                                  : merged_experts(uses[i].modules, contested)));
  Json config;
  config.set("config_groups", std::move(groups));
  if (uses.size() > 1) config.set("quantized_layers", quantized_layers(uses, declaration));
  config.set("ignore", json_strings(modelopt_exclude(declaration)));
  config.set("quant_algo", uses.size() == 1 ? words(uses[0].scheme).modelopt_algorithm
                                            : std::string_view("MIXED_PRECISION"));
  config.set("kv_cache_scheme", nullptr);
  config.set("producer", producer());
  config.set("quant_method", "modelopt");
  return config;
}

Json modelopt_file(const QuantDeclaration& declaration) {
  const auto uses = scheme_uses(declaration);
  Json quantization;
  quantization.set("quant_algo", uses.size() == 1 ? words(uses[0].scheme).modelopt_algorithm
                                                  : std::string_view("MIXED_PRECISION"));
  quantization.set("kv_cache_quant_algo", nullptr);
  quantization.set("group_size", kNvfp4Group);
  quantization.set("exclude_modules", json_strings(modelopt_exclude(declaration)));
  if (uses.size() > 1) quantization.set("quantized_layers", quantized_layers(uses, declaration));
  Json file;
  file.set("producer", producer());
  file.set("quantization", std::move(quantization));
  return file;
}

Json quantization_config(const QuantDeclaration& declaration, Dialect dialect) {
  return dialect == Dialect::modelopt ? modelopt_config(declaration)
                                      : compressed_tensors_config(declaration);
}

}  // namespace nibble
