// The memory of a card: what the driver and recorded passes take, and what is left.
#pragma once

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/runtime/device.h"
#include "model/config.h"

namespace nibble::cuda {

/// An upper bound of the bytes that recorded passes take of the card: `passes` walks of the model's
/// launches, and the driver's rounding of small buffers.
int64_t recorded_bytes(const ModelConfig& config, int32_t passes);

/// `limit`: the smaller card that is imitated, if any.
DeviceMemory card_memory(const Device& device, const CardLimit& limit);

}  // namespace nibble::cuda
