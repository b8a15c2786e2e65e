// GptqDevice: GPTQ where a card is. quantize/rounding has the algorithm and computes it on the CPU;
// a device gives the same bytes for the same sums, so it may be there or not. Plain arrays, no
// names.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "model/taps.h"
#include "tensor/tensor.h"

namespace nibble {

/// Sweeps of coordinate descent over a row that GPTQ has rounded, at most: the figures of
/// docs/lab/descent.md.
inline constexpr int kDescentSweeps = 8;

/// The second moment of a linear's input, and how it is prepared.
struct GptqMoment {
  int64_t cols = 0;  // K, a multiple of 16
  MomentPlace place =
      MomentPlace::host;             // of the products: device, if the device itself keeps them
  const double* products = nullptr;  // [K, K], the upper triangle, columns as in the file
  double unit = 0;                   // what the products are divided by
  std::span<const int64_t> order;    // [K/16]: blocks of 16 columns in the order of rounding
  std::span<const double> dampings;  // added to the diagonal: the first that works
};

/// Rows of weights [N, K] of BF16, F16 or F32, and the scales of their FP8 codes.
struct Fp8GptqRows {
  TensorView weights;
  std::span<const int32_t> exponents;  // [N]: weights and scales of a row are over 2^exponent
  std::span<const float> scales;       // [N, K/16], blocks in the order of rounding
};

/// An input whose moment a device has factorised. One thread uses it at a time.
class FactorisedInput {
 public:
  virtual ~FactorisedInput() = default;
  /// Makes codes [N, K/2] and scales [N, K/16] of weights [N, K] / 2^exponent (RowRounder::round).
  virtual void round_nvfp4(const TensorView& weights, int exponent, std::span<uint8_t> codes,
                           std::span<uint8_t> scales) = 0;
  /// codes [N, K].
  virtual void round_fp8(const Fp8GptqRows& rows, std::span<uint8_t> codes) = 0;
};

class GptqDevice {
 public:
  virtual ~GptqDevice() = default;
  /// One line for people.
  virtual std::string description() const = 0;
  /// True if it has room for inputs of K columns.
  virtual bool takes(int64_t cols) const = 0;
  /// Waits until a place is free, which the result holds. nullptr: with no damping it is positive
  /// definite. takes(cols) is true. Any thread; a thread holds one result at a time.
  virtual std::unique_ptr<FactorisedInput> factorise(const GptqMoment& moment) = 0;
};

}  // namespace nibble
