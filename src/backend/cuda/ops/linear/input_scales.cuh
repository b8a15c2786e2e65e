// The error by which one of two scales of 16 inputs in NVFP4 is taken
// (InputScales::four_over_six), with the bits of tensor/activation_codec.h.
#pragma once

namespace nibble::cuda {

inline constexpr float kSixOverFour = 1.5F;  // amax / 4 is the scale of 1.5 amax

/// Returns the sum of the squares of what `error_of` returns for columns 0 to 15, in the order of
/// the codec.
template <typename ErrorOf>
__device__ inline float squared_error(const ErrorOf& error_of) {
  const auto square = [&](int column) {
    const float error = error_of(column);
    return __fmul_rn(error, error);
  };
  float sums[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    sums[i] = __fadd_rn(__fadd_rn(square(2 * i), square(2 * i + 1)),
                        __fadd_rn(square(2 * i + 8), square(2 * i + 9)));
  return __fadd_rn(__fadd_rn(sums[0], sums[1]), __fadd_rn(sums[2], sums[3]));
}

}  // namespace nibble::cuda
