// The rule, first reason first.
#include "backend/cuda/activations/activation_rule.h"

#include "base/concat.h"

namespace nibble::cuda {
namespace {

int64_t in_fp4(const LinearSource& linear) {
  return linear.scheme.weights == WeightFormat::nvfp4 &&
                 linear.scheme.activations == ActivationFormat::nvfp4
             ? 1
             : 0;
}

int64_t in_fp4(const MlpSources& mlp) {
  return in_fp4(mlp.gate) + in_fp4(mlp.up) + in_fp4(mlp.down);
}

}  // namespace

int64_t linears_in_fp4(const Weights& weights) {
  return linears_in_fp4(weights.head(), weights.layers());
}

int64_t linears_in_fp4(const LinearSource& head, std::span<const LayerSources> layers) {
  int64_t count = in_fp4(head);
  for (const LayerSources& layer : layers) {
    const AttentionSources& attention = layer.attention;
    for (const LinearSource* linear :
         {&attention.q, &attention.k, &attention.v, &attention.o, &layer.delta_net.qkv,
          &layer.delta_net.z, &layer.delta_net.b, &layer.delta_net.a, &layer.delta_net.out})
      count += in_fp4(*linear);
    count += in_fp4(layer.dense_mlp) + in_fp4(layer.moe.shared);
    for (const MlpSources& expert : layer.moe.experts) count += in_fp4(expert);
  }
  return count;
}

ActivationChoice choose_activations(const ActivationFacts& facts) {
  if (!facts.has_instruction || facts.declared == 0) return {};
  const std::string declared = concat(facts.declared, " linears declare 4-bit inputs; ");
  if (!facts.computable)
    return {.reason = concat(declared,
                             "weight-only, since linears that share an input declare "
                             "different ones")};
  if (facts.proof == Fp4Proof::different)
    return {.reason = concat(declared,
                             "weight-only, since this card's products of 4-bit codes are "
                             "not those that the program computes")};
  if (facts.proof == Fp4Proof::none)
    return {.reason = concat(declared,
                             "weight-only, since products of 4-bit codes were not yet "
                             "proved on this card")};
  return {.mode = Activations::declared,
          .reason = concat(declared, "they get them, in products of 4-bit codes")};
}

ProductsChoice settle_products(const Weights& weights, Activations asked, Fp4Products way,
                               Fp4Proof proof) {
  ProductsChoice settled{.activations = asked};
  if (way == Fp4Products::widened ||
      (asked != Activations::declared && asked != Activations::automatic))
    return settled;
  // Input scales are read only where there is something to choose.
  ActivationFacts facts{
      .has_instruction = true, .proof = proof, .declared = linears_in_fp4(weights)};
  if (facts.declared > 0) facts.computable = check_declared(weights).ok();
  const ActivationChoice choice = choose_activations(facts);
  settled.reason = choice.reason;
  if (choice.mode != Activations::declared) return settled;
  settled.activations = Activations::declared;
  settled.way = way;
  return settled;
}

}  // namespace nibble::cuda
