// The way in which a card multiplies weights in NVFP4 with inputs that the checkpoint declares in
// NVFP4, and the activations that go with it. The rule that chooses is activation_rule.h.
#pragma once

#include <cstdint>
#include <string>

#include "model/backend.h"

namespace nibble {

/// Activations::declared has products widened to BF16, or of 4-bit codes by the card's instruction,
/// or by software in its place, for checks on other cards; blocks: by software in place of tensor
/// memory, in tests.
enum class Fp4Products : uint8_t { widened, instruction, software, blocks };

struct ProductsChoice {
  Activations activations = Activations::automatic;  // in place of those that were asked for
  Fp4Products way = Fp4Products::widened;
  std::string reason;  // for people; or empty
  bool operator==(const ProductsChoice&) const = default;
};

}  // namespace nibble
