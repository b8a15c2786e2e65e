// The CUDA backend: weights in their 4, 8 or 16 bits, BF16 activations and KV, F32 residual stream
// and recurrent state. Present in every build; where there is no CUDA toolkit, absent.cc says so.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "model/backend.h"
#include "model/config.h"
#include "model/weights.h"

namespace nibble {

/// Whether a card can be used, asked without touching it for longer than a query.
/// Errors: unsupported, naming what is missing (this build, a driver, a card, its capability).
Result<std::string> describe_cuda_device();

/// Asks the device first, then reads all weights into its memory; the result does not refer to
/// `weights` or its checkpoint afterwards. Errors: those of describe_cuda_device and of reading;
/// no_memory; unsupported for activations other than automatic and bf16 and for shapes beyond the
/// kernels (named).
Result<std::unique_ptr<Backend>> make_cuda_backend(const Weights& weights,
                                                   const ModelConfig& config,
                                                   const BackendOptions& options);

/// Device bytes that weights, pages and state slots may take together when passes have up to
/// rows_max rows: what is free now, with the weights, without the workspace of such passes.
/// `backend` must be of make_cuda_backend and not yet reserved.
int64_t cuda_pool_bytes(Backend& backend, int32_t rows_max);

}  // namespace nibble
