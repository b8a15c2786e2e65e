// GPTQ to FP8: the codes of rows whose scales stand, chosen with error feedback along the row
// (gptq_factor.h). The scales, and rounding without data, are fp8_round.h.
#pragma once

#include <span>

#include "quantize/rounding/gptq_factor.h"
#include "quantize/rounding/nvfp4_round.h"
#include "tensor/tensor.h"

namespace nibble {

/// The scales of rows [N, K]: that of row n and column k is
/// values[n * per_row + k / 128 * per_tile].
struct Fp8Scales {
  std::span<const float> values;  // finite and positive
  int64_t per_row = 0;
  int64_t per_tile = 0;
  float at(int64_t row, int64_t col) const;
};

class Fp8GptqRounder {
 public:
  Fp8GptqRounder(GptqFactor factor, RoundPath path) : factor_(std::move(factor)), path_(path) {}
  /// weights [N, K] of BF16, F16 or F32, magnitudes at most kWeightMax. codes: [N, K], never a NaN.
  /// Returns the sum of (w - rounded)^2. Rows may come in any order, from any thread: the bytes of
  /// a row depend on that row, its scales and the factor alone.
  double round(const TensorView& weights, const Fp8Scales& scales, std::span<uint8_t> codes) const;

 private:
  GptqFactor factor_;
  RoundPath path_;
};

}  // namespace nibble
