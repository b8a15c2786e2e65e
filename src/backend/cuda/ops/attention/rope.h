// This header puts the rotary frequencies of a model on the card.
#pragma once

#include "backend/cuda/ops/attention/attention.h"
#include "backend/cuda/runtime/device_memory.h"
#include "model/config/config.h"

namespace nibble::cuda {

struct DeviceRope {
  DeviceBuffer memory;
  RopeView view;  // into memory; empty for a model without attention
};
/// Errors: no_memory.
Result<DeviceRope> upload_rope(DeviceContext& device, const ModelConfig& config);

}  // namespace nibble::cuda
