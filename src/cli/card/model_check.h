// Small models of random weights on a card, whole, against the reference: the kernels that a
// receipt checks one by one, those that it does not check alone, and what joins them.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "backend/cuda/proof/card_receipt.h"
#include "model/backend.h"
#include "model/config/config.h"
#include "model/weights/weights.h"

namespace nibble {

/// The name of the part.
inline constexpr const char* kSmallModels = "small models, whole, against the reference";

using MakeBackend = std::function<Result<std::unique_ptr<Backend>>(
    const Weights&, const ModelConfig&, const BackendOptions&)>;

/// Logits of prompts and of generated rows, in each layout of weights, by the backends that `make`
/// makes; `ran` says how for people. Errors: those of `make` and of
/// Backend::alive(); corrupt for logits that are not finite.
Result<CheckedPart> check_small_models(const MakeBackend& make, std::string ran);

}  // namespace nibble
