// This file stores a number of an input in parts.
#pragma once

#include "backend/cuda/ptx/device_math.cuh"
#include "backend/cuda/weights/device_weights.h"

namespace nibble::cuda {

/// Stores x as column `column` of a row of `stride` columns in kF32Parts parts: 24 bits in three
/// times 8, so nothing is lost of numbers from 2^-110 up.
__device__ __forceinline__ void store_parts(uint16_t* row, int64_t stride, int column, float x) {
#pragma unroll
  for (int part = 0; part < kF32Parts; ++part) {
    const uint16_t taken = to_bf16(x);
    row[part * (stride / kF32Parts) + x_place(column)] = taken;
    x -= from_bf16(taken);
  }
}

}  // namespace nibble::cuda
