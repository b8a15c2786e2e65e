// The reference backend: scalar, obvious, single-threaded; the truth every other backend is tested
// against. Values are F32 with double accumulation, caches F32. Not fast, not meant to be.
#pragma once

#include <memory>

#include "base/result.h"
#include "model/backend.h"

namespace nibble {

/// Loads every tensor of `weights` (in the file's own format; rows are dequantized when used). The
/// result does not refer to `weights` or its checkpoint afterwards. Errors: those of reading.
Result<std::unique_ptr<Backend>> make_reference_backend(const Weights& weights,
                                                        const ModelConfig& config,
                                                        const BackendOptions& options);
/// The same, with prompts rounded where the prompt kernels of a card keep BF16
/// (prompt_rounding.h): what those are compared with.
Result<std::unique_ptr<Backend>> make_bf16_prompt_reference_backend(const Weights& weights,
                                                                    const ModelConfig& config,
                                                                    const BackendOptions& options);

}  // namespace nibble
