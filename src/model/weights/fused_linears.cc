// Roles to groups.
#include "model/weights/fused_linears.h"

#include <initializer_list>

namespace nibble {
namespace {

using Groups = std::vector<FusedLinears>;

void add(Groups& groups, std::initializer_list<const LinearSource*> linears) {
  FusedLinears present;
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

std::vector<FusedLinears> fused_linears(const LayerSources& layer) {
  Groups groups;
  add_layer(groups, layer);
  return groups;
}

std::vector<FusedLinears> fused_linears(const MtpSources& mtp) {
  Groups groups;
  add(groups, {&mtp.joined});
  add_layer(groups, mtp.layer);
  return groups;
}

}  // namespace nibble
