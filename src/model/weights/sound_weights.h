// Checks that a loaded weight has finite numbers only. Backends refuse other weights while loading,
// so that no kernel needs a case for them.
#pragma once

#include <string_view>

#include "base/result.h"
#include "model/weights/weights.h"

namespace nibble {

/// Values and scales of a linear in the types of LinearWeight, wherever they lie.
struct LinearView {
  std::string_view module;
  WeightFormat weights = WeightFormat::plain;
  TensorView values, scales;
};

/// Errors: corrupt for NaN or infinity among values or scales, and for NVFP4 block scales that are
/// negative or NaN.
Result<void> check_sound(const LinearView& weight);
Result<void> check_sound(const LinearWeight& weight);

}  // namespace nibble
