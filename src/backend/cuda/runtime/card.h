// What a model may ask of the card: shapes the kernels hold, and memory.
#pragma once

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/runtime/device.h"
#include "backend/cuda/weights/device_weights.h"
#include "model/config.h"

namespace nibble::cuda {

/// Errors: unsupported for shapes beyond what kernels keep in registers or shared memory.
Result<void> refuse_oversized(const ModelConfig& config);

/// An upper bound of the bytes that recorded passes take of the card: `passes` walks of the model's
/// launches, and the driver's rounding of small buffers.
int64_t recorded_bytes(const ModelConfig& config, int32_t passes);

/// `limit`: the smaller card that is imitated, if any.
CudaMemory card_memory(const Device& device, const CardLimit& limit);

/// A page format, for people.
std::string_view kv_name(KvFormat format);
/// See cuda_kernel_table(); that of activations f32 is another.
std::string f32_kernel_table(const ModelConfig& config, KvFormat kv, StateFormat state);
std::string kernel_table(const Device& device, const CardLimit& limit, const ModelConfig& config,
                         KvFormat kv, StateFormat state);

}  // namespace nibble::cuda
