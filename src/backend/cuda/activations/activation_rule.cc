// The rule, first reason first.
#include "backend/cuda/activations/activation_rule.h"

#include "backend/cuda/weights/device_weights.h"
#include "base/concat.h"

namespace nibble::cuda {
namespace {

bool in_fp4(const LinearSource& linear) {
  return linear.scheme.weights == WeightFormat::nvfp4 &&
         linear.scheme.activations == ActivationFormat::nvfp4;
}
bool in_fp8(const LinearSource& linear) {
  const ActivationFormat inputs = linear.scheme.activations;
  return linear.present() && format_of(linear.scheme) == Format::fp8 &&
         inputs != ActivationFormat::high && inputs != ActivationFormat::nvfp4;
}

/// Counts the linears of a model that `is_one` takes.
int64_t count_linears(const LinearSource& head, std::span<const LayerSources> layers,
                      bool (&is_one)(const LinearSource&)) {
  int64_t count = is_one(head) ? 1 : 0;
  const auto add = [&](const LinearSource& linear) { count += is_one(linear) ? 1 : 0; };
  const auto add_mlp = [&](const MlpSources& mlp) {
    for (const LinearSource* linear : {&mlp.gate, &mlp.up, &mlp.down}) add(*linear);
  };
  for (const LayerSources& layer : layers) {
    const AttentionSources& attention = layer.attention;
    for (const LinearSource* linear :
         {&attention.q, &attention.k, &attention.v, &attention.o, &layer.delta_net.qkv,
          &layer.delta_net.z, &layer.delta_net.b, &layer.delta_net.a, &layer.delta_net.out})
      add(*linear);
    add_mlp(layer.dense_mlp);
    add_mlp(layer.moe.shared);
    for (const MlpSources& expert : layer.moe.experts) add_mlp(expert);
  }
  return count;
}

/// True if declared inputs that were asked for are of 8 bits alone and prompts can take them.
bool takes_fp8_alone(const ActivationFacts& facts, int64_t in_fp8) {
  return facts.declared == 0 && in_fp8 > 0 && facts.computable && facts.proof == Fp4Proof::equal;
}

}  // namespace

int64_t linears_in_fp4(const Weights& weights) {
  return linears_in_fp4(weights.head(), weights.layers());
}
int64_t linears_in_fp4(const LinearSource& head, std::span<const LayerSources> layers) {
  return count_linears(head, layers, in_fp4);
}
int64_t linears_in_fp8(const Weights& weights) {
  return count_linears(weights.head(), weights.layers(), in_fp8);
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
  const int64_t in_fp8 = asked == Activations::declared ? linears_in_fp8(weights) : 0;
  if (facts.declared + in_fp8 > 0) facts.computable = check_declared(weights).ok();
  const ActivationChoice choice = choose_activations(facts);
  settled.reason = choice.reason;
  if (takes_fp8_alone(facts, in_fp8))
    settled.reason =
        concat(in_fp8, " linears declare 8-bit inputs; prompts get them in products of FP8 codes");
  else if (choice.mode != Activations::declared)
    return settled;
  settled.activations = Activations::declared;
  settled.way = way;
  return settled;
}

}  // namespace nibble::cuda
