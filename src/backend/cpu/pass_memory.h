// The memory of a pass by formula, for the plan and for the backend that is held to it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/backend.h"
#include "model/config/config.h"

namespace nibble::cpu {

/// The most products of one list of a block.
size_t calls_most(const ModelConfig& config);

/// Bytes that Backend::reserve() takes for passes of these sizes: the workspace, the lists of
/// products and of routing, and inputs in fewer bits. Allocates nothing.
int64_t pass_memory_bytes(const ModelConfig& config, const PoolSizes& sizes,
                          Activations activations);

/// The mode that a CPU serves in: automatic is int8, others stay.
Activations settled_activations(Activations activations);

}  // namespace nibble::cpu
