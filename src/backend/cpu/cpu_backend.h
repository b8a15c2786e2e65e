// The CPU backend: SIMD and threads, F32 activations and caches. The instruction set is chosen at
// run time; every set, thread count, batch and chunk of a prompt gives the same bits.
#pragma once

#include <memory>

#include "base/result.h"
#include "model/backend.h"
#include "model/config/config.h"
#include "model/weights/weights.h"

namespace nibble {

/// Loads and repacks all weights; the result does not refer to `weights` or its checkpoint
/// afterwards. Errors: those of reading; corrupt for NaN weights; unsupported for options.isa.
Result<std::unique_ptr<Backend>> make_cpu_backend(const Weights& weights, const ModelConfig& config,
                                                  const BackendOptions& options);

}  // namespace nibble
