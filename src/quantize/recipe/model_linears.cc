// Roles to groups.
#include "quantize/recipe/model_linears.h"

#include <algorithm>
#include <set>

namespace nibble {
namespace {

using Groups = std::vector<std::vector<const LinearSource*>>;

void add(Groups& groups, std::initializer_list<const LinearSource*> linears) {
  std::vector<const LinearSource*> present;
  for (const LinearSource* linear : linears)
    if (linear->present()) present.push_back(linear);
  if (!present.empty()) groups.push_back(std::move(present));
}

void add_mlp(Groups& groups, const MlpSources& mlp) {
  add(groups, {&mlp.gate, &mlp.up});
  add(groups, {&mlp.down});
}

void add_layer(Groups& groups, const LayerSources& layer) {
  add(groups, {&layer.attention.q, &layer.attention.k, &layer.attention.v});
  add(groups, {&layer.attention.o});
  add(groups, {&layer.delta_net.qkv, &layer.delta_net.z});
  add(groups, {&layer.delta_net.b, &layer.delta_net.a});
  add(groups, {&layer.delta_net.out});
  add_mlp(groups, layer.dense_mlp);
  add(groups, {&layer.moe.router});
  for (const MlpSources& expert : layer.moe.experts) add_mlp(groups, expert);
  add_mlp(groups, layer.moe.shared);
  add(groups, {&layer.moe.shared_gate});
}

}  // namespace

Groups fused_linears(const Weights& weights) {
  Groups groups;
  for (const LayerSources& layer : weights.layers()) add_layer(groups, layer);
  if (weights.head().values != weights.embedding().values) add(groups, {&weights.head()});
  add(groups, {&weights.embedding()});
  return groups;
}

bool is_embedding(std::string_view module) { return module.ends_with("embed_tokens"); }

QuantDeclaration stored_declaration(const Checkpoint& checkpoint, const Weights& weights) {
  QuantDeclaration declaration;
  std::set<std::string> stacks;
  for (const auto& group : fused_linears(weights)) {
    for (const LinearSource* linear : group) {
      if (linear->scheme.weights != WeightFormat::plain) {
        declaration.quantized.push_back({linear->module, linear->scheme});
      } else if (is_embedding(linear->module)) {
        continue;  // no linear: configs name what quantized tables there are, not the others
      } else if (checkpoint.find(linear->module + ".weight") != nullptr) {
        declaration.plain.push_back(linear->module);
      } else {
        const std::string stack = linear->module.substr(0, linear->module.find(".experts.") + 8);
        if (stacks.insert(stack).second) declaration.plain.push_back(stack);
      }
    }
  }
  return declaration;
}

std::string linear_kind(std::string_view module) {
  const size_t layers = module.find("layers.");
  if (layers != std::string_view::npos) module.remove_prefix(layers + 7);
  std::string kind;
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
  constexpr std::string_view kSuffix = ".weight";
  for (const TensorEntry& entry : checkpoint.entries()) {
    const std::string_view name = entry.name;
    declaration.has_mtp |= name.starts_with("mtp.");
    const size_t vision = name.find("visual.");
    if (vision != std::string_view::npos) declaration.vision_prefix = name.substr(0, vision + 6);
    if (!name.ends_with(kSuffix) || entry.shape.rank() != 2 || text.contains(name)) continue;
    if (name.ends_with("embed.weight") || name.ends_with("embed_tokens.weight")) continue;
    declaration.plain.emplace_back(name.substr(0, name.size() - kSuffix.size()));
  }
}

}  // namespace nibble
