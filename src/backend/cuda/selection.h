// The abilities of this backend on a card: the facts that kernels are chosen by, the shapes they
// take, and the table of the kernels that a model gets.
#pragma once

#include <string>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/runtime/architecture.h"
#include "backend/cuda/runtime/device.h"
#include "backend/cuda/runtime/launch_log.h"
#include "backend/cuda/weights/device_weights.h"
#include "model/config/config.h"

namespace nibble::cuda {

/// The card's own facts, or those of the smaller card that `limit` imitates.
Architecture architecture_of(const Device& device, const CardLimit& limit);

/// Errors: unsupported for shapes beyond what kernels keep in registers or shared memory.
Result<void> refuse_oversized(const ModelConfig& config);

/// The lines of BackendFacts::kernel_table() that do not depend on the number of rows, and those
/// that do; that of activations f32 is another.
std::string kernel_table(const Architecture& card, const ModelConfig& config, KvFormat kv,
                         StateFormat state);
std::string launch_lines(const LaunchLog& log, int32_t rows);
std::string f32_kernel_table(const ModelConfig& config, KvFormat kv, StateFormat state);

}  // namespace nibble::cuda
