// Asks at start whether this machine's card multiplies 4-bit codes as this program does, and
// settles how a checkpoint is multiplied there. The answer of the card is remembered in the user's
// cache folder, so that it is asked once for each card, driver and program.
#pragma once

#include <filesystem>
#include <string>

#include "backend/cuda/activations/activation_rule.h"
#include "backend/cuda/ops/quantized/fp4_cases.h"
#include "backend/cuda/proof/proof_memory.h"
#include "base/result.h"
#include "model/backend.h"

namespace nibble {

/// The products that a user wants.
struct ProductsRequest {
  Fp4Products asked = Fp4Products::instruction;  // or software that stands in for it
  bool require_native = false;                  // refuse where products are not made of 4-bit codes
  cuda::Fp4Fault fault = cuda::Fp4Fault::none;  // planted by tests; then nothing is remembered
};

/// Returns the subject of a proof on this card by this program.
ProofSubject proof_subject(const CardIdentity& card, Fp4Products way);
/// The file that remembers it; empty where no folder is known, or nothing tells this program from
/// another.
std::filesystem::path proof_file(const ProofSubject& subject);

/// Refuses before anything is read where products of 4-bit codes are required and cannot be made.
/// `obstacle`: a backend or weights without them; or empty.
Result<void> check_native(const ProductsRequest& request, const BackendOptions& options,
                          const std::string& obstacle);

/// The card's way for a checkpoint. Only where `options` has activations that may be multiplied as
/// codes is the card asked. `notice` gets a line for people where there is one. Errors: those of
/// card_identity; unsupported where codes are required and the weights or the card do not have
/// them.
Result<ProductsChoice> settle_card_products(const Weights& weights, const ProductsRequest& request,
                                            const BackendOptions& options, std::string& notice);

}  // namespace nibble
