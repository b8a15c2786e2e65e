// Puts the matrices of a model that are multiplied by tensor memory into the order for that, once
// after they were loaded. Nothing else reads them then; the others stay as they were.
#pragma once

#include "backend/cuda/weights/weight_store.h"
#include "model/config/config.h"

namespace nibble::cuda {

/// Errors: no_memory, for 64 MB that it takes meanwhile.
Result<void> lay_weights(WeightStore& weights, const ModelConfig& config, const Launcher& launcher);

}  // namespace nibble::cuda
