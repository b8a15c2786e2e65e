// The abilities of this backend on a card: the facts that kernels are chosen by, and the shapes
// they take.
#pragma once

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/runtime/architecture.h"
#include "backend/cuda/runtime/device_context.h"
#include "backend/cuda/runtime/launcher.h"
#include "model/config/config.h"

namespace nibble::cuda {

/// The card's own facts, or those of the smaller card that `limit` imitates.
Architecture architecture_of(DeviceContext& device, const CardLimit& limit);
/// The form in which passes are launched on it.
Launcher launcher_of(DeviceContext& device, const CardLimit& limit);

/// Errors: unsupported for shapes beyond what kernels keep in registers or shared memory.
Result<void> refuse_oversized(const ModelConfig& config);

}  // namespace nibble::cuda
