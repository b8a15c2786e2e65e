// The choice of `--activations auto` on a card, as pure host code: the rule of docs/kernels/fp4.md,
// which was written from measured divergences.
#pragma once

#include <cstdint>
#include <string>

#include "backend/cuda/runtime/architecture.h"
#include "model/backend.h"
#include "model/weights/weights.h"

namespace nibble::cuda {

/// The result of comparing a card's products of 4-bit codes with the same in software; none: they
/// were not compared there.
enum class Fp4Proof : uint8_t { none, equal, different };

struct ActivationFacts {
  bool has_instruction = false;  // Architecture::has_fp4_mma()
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

/// Linears whose weights are in NVFP4 and which declare inputs in NVFP4.
int64_t linears_in_fp4(const Weights& weights);

}  // namespace nibble::cuda
