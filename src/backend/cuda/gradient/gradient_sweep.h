// The backward sweep of a card (model/devices/gradient_device.h): residual streams of a group
// between all layers, and its gradients, stay on the card in F32; the weights of one layer and of
// the next are there in BF16, as the checkpoint has them.
#pragma once

#include <memory>

#include "backend/cuda/runtime/launcher.h"
#include "backend/cuda/weights/weight_senders.h"
#include "model/config/config.h"
#include "model/devices/gradient_device.h"
#include "model/weights/weights.h"

namespace nibble::cuda {

struct GradientSweepRequest {
  const Weights& weights;  // it, the config and the card must outlive the sweep
  const ModelConfig& config;
  const uint16_t* embedded;  // BF16 [rows, hidden] of all samples, on the card or on the host
  Launcher launcher;
  WeightSenders& senders;  // outlives it too
  GradientNeeds needs;
  int64_t layer_bytes = 0;  // of the largest layer
  int64_t free_bytes = 0;   // what it may take of the card
};

/// Errors: no_memory with the numbers; unsupported for heads larger than the kernels hold, and
/// weights that are quantized.
Result<std::unique_ptr<GradientDevice>> make_gradient_sweep(const GradientSweepRequest& request);

}  // namespace nibble::cuda
