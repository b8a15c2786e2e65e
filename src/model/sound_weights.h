// Whether a loaded weight holds numbers only. Backends refuse what is not sound while loading, so
// that no kernel needs a case for it.
#pragma once

#include "base/result.h"
#include "model/weights.h"

namespace nibble {

/// Errors: corrupt for NaN or infinity among values or scales, and for NVFP4 block scales that are
/// negative or NaN.
Result<void> check_sound(const LinearWeight& weight);

}  // namespace nibble
