// The two loops that the recurrences are made of, in an order that every instruction set can keep.
#pragma once

#include <cstdint>

namespace nibble::gradient {

/// Sum of a_i b_i, as sixteen sums of every sixteenth product, which are added last.
inline float dot(const float* a, const float* b, int64_t count) {
  constexpr int64_t kSums = 16;
  float sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= count; i += kSums)
    for (int64_t j = 0; j < kSums; ++j) sums[j] += a[i + j] * b[i + j];
  for (; i < count; ++i) sums[i % kSums] += a[i] * b[i];
  for (int64_t half = kSums / 2; half > 0; half /= 2)
    for (int64_t j = 0; j < half; ++j) sums[j] += sums[j + half];
  return sums[0];
}

/// y += factor * x. They do not overlap.
inline void add_scaled(float factor, const float* __restrict x, float* __restrict y,
                       int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] += factor * x[i];
}

}  // namespace nibble::gradient
