// The rows of one of several inputs.
#pragma once

#include "backend/cuda/ops/calibration/input_sums.h"

namespace nibble::cuda {

__device__ inline Segment segment_of(const InputRows& in, int input) {
  return in.segments == nullptr ? Segment{0, in.assignments} : in.segments[input];
}

}  // namespace nibble::cuda
