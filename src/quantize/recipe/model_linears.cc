// Roles to groups.
#include "quantize/recipe/model_linears.h"

#include <algorithm>
#include <set>

#include "model/weights/fused_linears.h"

namespace nibble {

using Groups = std::vector<FusedLinears>;

Groups fused_linears(const Weights& weights) {
  Groups groups;
  const auto add = [&groups](const Groups& more) {
    groups.insert(groups.end(), more.begin(), more.end());
  };
  for (const LayerSources& layer : weights.layers()) add(fused_linears(layer));
  if (weights.mtp()) add(fused_linears(*weights.mtp()));
  if (weights.head().values != weights.embedding().values) groups.push_back({&weights.head()});
  groups.push_back({&weights.embedding()});
  return groups;
}

Result<Weights> bind_linears(const Checkpoint& checkpoint, ModelConfig config) {
  const auto in_fewer_bits = [](const TensorEntry& entry) {
    return is_mtp(entry.name) && (entry.dtype == DType::u8 || entry.dtype == DType::f8_e4m3);
  };
  config.draft_layers = std::ranges::any_of(checkpoint.entries(), in_fewer_bits) ? 1 : 0;
  return Weights::bind(checkpoint, config);
}

bool is_embedding(std::string_view module) { return module.ends_with("embed_tokens"); }

std::string expert_list(std::string_view module) {
  constexpr std::string_view kExperts = ".experts.";
  const size_t at = module.find(kExperts);
  return at == std::string_view::npos ? std::string()
                                      : std::string(module.substr(0, at + kExperts.size() - 1));
}

QuantDeclaration stored_declaration(const Weights& weights) {
  QuantDeclaration declaration;
  std::set<std::string> opened;  // expert lists with a quantized linear
  const auto groups = fused_linears(weights);
  for (const auto& group : groups)
    for (const LinearSource* linear : group)
      if (linear->scheme.weights != WeightFormat::plain) {
        declaration.quantized.push_back({linear->module, linear->scheme});
        opened.insert(expert_list(linear->module));
      }
  std::set<std::string> named;
  for (const auto& group : groups) {
    for (const LinearSource* linear : group) {
      // A table is no linear: configs name what quantized tables there are, not the others.
      if (linear->scheme.weights != WeightFormat::plain || is_embedding(linear->module)) continue;
      const std::string list = expert_list(linear->module);
      const std::string& name = list.empty() || opened.contains(list) ? linear->module : list;
      if (named.insert(name).second) declaration.plain.push_back(name);
    }
  }
  return declaration;
}

std::string linear_kind(std::string_view module) {
  std::string kind = is_mtp(module) ? "mtp" : "";
  if (is_mtp(module)) module.remove_prefix(4);
  const size_t layers = module.find("layers.");
  if (layers != std::string_view::npos) module.remove_prefix(layers + 7);
  for (size_t begin = 0; begin <= module.size();) {
    const size_t end = std::min(module.find('.', begin), module.size());
    const auto part = module.substr(begin, end - begin);
    if (part.find_first_not_of("0123456789") != std::string_view::npos)
      kind += concat(kind.empty() ? "" : ".", part);
    begin = end + 1;
  }
  return kind;
}

void declare_other_areas(const Checkpoint& checkpoint, const Weights& weights,
                         QuantDeclaration& declaration) {
  std::set<std::string_view> text;
  for (const auto& group : fused_linears(weights))
    for (const LinearSource* linear : group) text.insert(linear->values);
  const bool mtp_is_plain =
      std::ranges::none_of(declaration.quantized, is_mtp, &QuantDeclaration::Module::name);
  constexpr std::string_view kSuffix = ".weight";
  for (const TensorEntry& entry : checkpoint.entries()) {
    const std::string_view name = entry.name;
    declaration.has_mtp |= mtp_is_plain && is_mtp(name);
    const size_t vision = name.find("visual.");
    if (vision != std::string_view::npos) declaration.vision_prefix = name.substr(0, vision + 6);
    if (!name.ends_with(kSuffix) || entry.shape.rank() != 2 || text.contains(name)) continue;
    if (name.ends_with("embed.weight") || name.ends_with("embed_tokens.weight")) continue;
    declaration.plain.emplace_back(name.substr(0, name.size() - kSuffix.size()));
  }
}

}  // namespace nibble
