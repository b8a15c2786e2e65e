// The CUDA backend: weights in their 4, 8 or 16 bits, BF16 activations (or what the checkpoint
// declares, emulated in BF16; or, for tests, F32) and KV, F32 residual stream and recurrent state.
// Present in every build; where there is no CUDA toolkit, absent.cc says so.
#pragma once

#include <memory>
#include <string>

#include "backend/cuda/activations/products_choice.h"
#include "base/result.h"
#include "model/backend.h"
#include "model/config/config.h"
#include "model/weights/synthetic_weights.h"
#include "model/weights/weights.h"

namespace nibble {

/// Describes the card if one can be used, without touching it for longer than a query.
/// Errors: unsupported, naming what is missing (this build, a driver, a card, code for it).
Result<std::string> describe_cuda_device();
/// The targets that this build has code for, and the CUDA version it was built with; for a build
/// without CUDA "none".
std::string describe_cuda_code();

/// Asks the device first, then reads all weights into its memory; the result does not refer to
/// `weights` or its checkpoint afterwards. Errors: those of describe_cuda_device and of reading;
/// no_memory; unsupported for declared activations that differ where an input is shared, and for
/// shapes beyond the kernels (named).
Result<std::unique_ptr<Backend>> make_cuda_backend(const Weights& weights,
                                                   const ModelConfig& config,
                                                   const BackendOptions& options);

/// The same with activations and products as they were settled (activation_rule.h), in place of
/// options.activations; description() tells the reason. Errors also: unsupported for a way of
/// products that this card, or these activations, do not have.
Result<std::unique_ptr<Backend>> make_settled_cuda_backend(const Weights& weights,
                                                           const ModelConfig& config,
                                                           const BackendOptions& options,
                                                           const ProductsChoice& products);

/// The same for checks: where the checkpoint has weights in NVFP4 and declares activations in
/// NVFP4, products are made of their codes by the kernels for cards with an instruction for that
/// (compute capability 12.0 and 12.1), the instruction computed in software, which is slow. Errors:
/// as make_cuda_backend; unsupported unless options.activations is declared, and on a card that has
/// the instruction.
Result<std::unique_ptr<Backend>> make_fp4_emulating_backend(const Weights& weights,
                                                            const ModelConfig& config,
                                                            const BackendOptions& options);

/// Does what make_cuda_backend() does, without a checkpoint: weights of the config's shape are
/// random and deterministic, stored as `formats` says, and made on the device. Errors: those of
/// make_cuda_backend(); unsupported for declared activations.
Result<std::unique_ptr<Backend>> make_random_cuda_backend(const ModelConfig& config,
                                                          const FormatOf& formats,
                                                          const BackendOptions& options);

}  // namespace nibble
