// Checks that a loaded weight has finite numbers only. Backends refuse other weights while loading,
// so that no kernel needs a case for them.
#pragma once

#include "base/result.h"
#include "model/weights/weights.h"

namespace nibble {

/// Errors: corrupt for NaN or infinity among values or scales, and for NVFP4 block scales that are
/// negative or NaN.
Result<void> check_sound(const LinearWeight& weight);

}  // namespace nibble
