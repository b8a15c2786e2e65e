// The parts of a state slot, in the order in which they lie (weights/device_weights.h), without
// CUDA headers: the pools and `nibble plan` ask the same functions.
#pragma once

#include <cstdint>

#include "backend/cuda/weights/device_weights.h"
#include "model/config/config.h"

namespace nibble::cuda {

/// Returns the floats that the recurrent states of all layers take.
int64_t states_floats(const ModelConfig& config, StateFormat format);
/// Returns the floats of the inputs of all convolutions, which follow.
int64_t convolution_floats(const ModelConfig& config);
/// Returns the bytes of a slot without saved inputs: these two, then with a layer that drafts a
/// hidden row; both ends are aligned to 256 bytes.
int64_t state_slot_bytes(const ModelConfig& config, StateFormat format);
/// Returns the bytes that the saved inputs of one drafted row add to a slot.
int64_t saved_row_bytes(const ModelConfig& config);

}  // namespace nibble::cuda
