// Names and shapes of the vision tower that a config.json describes, as transformers has them. This
// program copies such tensors and does not run them; other engines do not load a folder without.
#pragma once

#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/checkpoint_writer.h"

namespace nibble {

/// BF16. Empty without a vision_config. Errors: corrupt for one that lacks a size, unsupported for
/// one with deepstack layers.
Result<std::vector<TensorPlan>> synthetic_vision(const Json& config);

}  // namespace nibble
