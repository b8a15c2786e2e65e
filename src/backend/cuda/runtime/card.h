// The memory of a card: what the driver takes, and what is left.
#pragma once

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/runtime/device.h"

namespace nibble::cuda {

/// `limit`: the smaller card that is imitated, if any.
DeviceMemory card_memory(const Device& device, const CardLimit& limit);

}  // namespace nibble::cuda
