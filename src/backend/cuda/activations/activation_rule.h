// The choice of `--activations auto` on a card, as pure host code: the rule of docs/kernels/fp4.md,
// which was written from measured divergences.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "backend/cuda/activations/products_choice.h"
#include "model/weights/weights.h"

namespace nibble::cuda {

/// The result of comparing a card's products of 4-bit codes with the same in software; none: they
/// were not compared there.
enum class Fp4Proof : uint8_t { none, equal, different };

struct ActivationFacts {
  bool has_instruction = false;  // Architecture::has_fp4_mma(), or software stands in for it
  Fp4Proof proof = Fp4Proof::none;
  int64_t declared = 0;    // linears in NVFP4 that declare inputs in NVFP4
  bool computable = true;  // check_declared() has no objection
};

struct ActivationChoice {
  Activations mode = Activations::bf16;  // bf16: weight-only
  std::string reason;                    // for people; empty where there was nothing to choose
  bool operator==(const ActivationChoice&) const = default;
};
ActivationChoice choose_activations(const ActivationFacts& facts);

/// Errors: unsupported for what shares an input here and declares different ones there (gate and
/// up, experts of a layer), and for an embedding table that declares one.
Result<void> check_declared(const Weights& weights);

/// Applies the rule to activations `asked` for, with the weights of a file. `way`: that of
/// products on this card once they are proved; widened: it has no instruction and nothing stands in
/// for one, so nothing changes. Declared activations that were asked for stay declared, and are
/// multiplied as codes where that is proved: of 4 bits, and in prompts of 8.
ProductsChoice settle_products(const Weights& weights, Activations asked, Fp4Products way,
                               Fp4Proof proof);

/// Linears whose weights are in NVFP4 and which declare inputs in NVFP4.
int64_t linears_in_fp4(const Weights& weights);
int64_t linears_in_fp4(const LinearSource& head, std::span<const LayerSources> layers);
/// The same of FP8 and inputs in FP8.
int64_t linears_in_fp8(const Weights& weights);

}  // namespace nibble::cuda
