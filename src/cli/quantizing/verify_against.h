// The second half of `nibble verify --against SRC`: how far a quantized checkpoint is from its
// source, in weights and, on a text, in distributions.
#pragma once

#include "cli/serving/model_loader.h"
#include "cli/verb.h"

namespace nibble {

/// Prints figures of the checkpoint in `folder` and what is past a threshold; kExitFailure if
/// anything is. The source is --against.
Result<int> verify_against(const Arguments& arguments, const std::filesystem::path& folder,
                           Terminal& terminal);

}  // namespace nibble
