// For benchmarks only: parts of a pass left out one by one, and what a pass met.
#pragma once

#include <cstdint>

#include "backend/cuda/cuda_backend.h"

namespace nibble::cuda {

/// From the next reserve() on, passes leave out these steps: bit s is Step s. Both need a backend
/// of make_cuda_backend or make_random_cuda_backend.
void skip_steps(Backend& backend, uint32_t steps);
/// Experts with rows, added up over the layers of all passes of as many rows as the last one. It
/// counts from any number: only differences between passes of one size mean something.
int64_t experts_met(Backend& backend);
/// Device time of one recorded pass of `rows` rows, mean of `repeats` back to back, in us.
double recorded_pass_us(Backend& backend, int32_t rows, int repeats);

}  // namespace nibble::cuda
