// For benchmarks only: a backend of any shape on random weights, and its parts left out one by one.
#pragma once

#include <cstdint>
#include <memory>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/kernels.h"
#include "model/synthetic_weights.h"

namespace nibble::cuda {

using DummyRecipe = WeightLayout;

/// Deterministic normal weights made on the device; nothing is read. Errors: as make_cuda_backend.
Result<std::unique_ptr<Backend>> make_dummy_cuda_backend(const ModelConfig& config,
                                                         DummyRecipe recipe,
                                                         const BackendOptions& options = {});

/// From the next reserve() on, passes leave out these steps: bit s is Step s. Both need a backend
/// of make_cuda_backend or make_dummy_cuda_backend.
void skip_steps(Backend& backend, uint32_t steps);
/// Experts with rows, added up over the layers of all passes of as many rows as the last one. It
/// counts from any number: only differences between passes of one size mean something.
int64_t experts_met(Backend& backend);
/// Device time of one recorded pass of `rows` rows, mean of `repeats` back to back, in us.
double recorded_pass_us(Backend& backend, int32_t rows, int repeats);

}  // namespace nibble::cuda
