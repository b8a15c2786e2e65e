// The layer runner of a card: BF16 weights of one layer and of the next, read while this one
// computes, all rows in prompt arithmetic. Present in every build, as cuda_backend.h.
#pragma once

#include <memory>

#include "base/result.h"
#include "model/backend.h"
#include "model/config/config.h"
#include "model/layer_runner.h"
#include "model/weights/weights.h"

namespace nibble {

/// Both must outlive the result. Hidden states are kept on the card if they fit beside two layers
/// and the sums, else in host memory. Errors: those of describe_cuda_device; unsupported for shapes
/// that the prompt kernels do not hold; of start(): no_memory if the card cannot take two layers.
Result<std::unique_ptr<LayerRunner>> make_cuda_layer_runner(const Weights& weights,
                                                            const ModelConfig& config,
                                                            const CardLimit& card);

}  // namespace nibble
