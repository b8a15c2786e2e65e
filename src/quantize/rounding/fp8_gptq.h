// GPTQ to FP8: the codes of rows whose scales stand, chosen with error feedback along the row
// (gptq_factor.h). The scales, and rounding without data, are fp8_round.h.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "quantize/rounding/gptq_factor.h"
#include "quantize/rounding/nvfp4_round.h"
#include "tensor/tensor.h"

namespace nibble {

/// The scales of rows [N, K]: that of row n and column k is
/// values[n * per_row + n / 128 * per_band + k / 128 * per_tile].
struct Fp8Scales {
  std::span<const float> values;  // finite and positive
  int64_t per_row = 0;
  int64_t per_tile = 0;
  int64_t per_band = 0;
  float at(int64_t row, int64_t col) const;
  /// The scales of the rows from `row` on, the first of a band.
  Fp8Scales from_row(int64_t row) const;
};

/// Rounds rows whose scales stand.
class Fp8Rounder {
 public:
  virtual ~Fp8Rounder() = default;
  /// weights [N, K] of BF16, F16 or F32, magnitudes at most kWeightMax. codes: [N, K], never a NaN.
  /// Returns the sum of (w - rounded)^2. Rows may come in any order: the bytes of a row depend on
  /// that row, its scales and the input's statistics alone.
  virtual double round(const TensorView& weights, const Fp8Scales& scales,
                       std::span<uint8_t> codes) const = 0;
  /// The same of all bands of 128 rows, with the help of threads; a sum for each band.
  virtual std::vector<double> round_bands(const TensorView& weights, const Fp8Scales& scales,
                                          std::span<uint8_t> codes, ThreadPool& threads) const;
};

class Fp8GptqRounder final : public Fp8Rounder {
 public:
  Fp8GptqRounder(GptqFactor factor, RoundPath path) : factor_(std::move(factor)), path_(path) {}
  /// Any thread may call it.
  double round(const TensorView& weights, const Fp8Scales& scales,
               std::span<uint8_t> codes) const override;

 private:
  GptqFactor factor_;
  RoundPath path_;
};

/// Rows are worked on over 2^exponent, a power of two near the row's largest scale.
int fp8_row_exponent(const Fp8Scales& scales, int64_t row, int64_t cols);
/// The scales of a row's blocks of 16 columns, in `order`, over 2^exponent. out: [K/16].
void fp8_block_scales(const Fp8Scales& scales, int64_t row, int exponent,
                      std::span<const int64_t> order, float* out);
/// Sum of (w - rounded)^2 of a row. codes: [K].
double fp8_squared_error(const TensorView& weights, int64_t row, const Fp8Scales& scales,
                         const uint8_t* codes);

/// Calls sum_of(rows, index of the first, their codes) for bands of 128 rows of `weights` [N, K].
std::vector<double> sum_by_bands(
    const TensorView& weights, std::span<uint8_t> codes, ThreadPool& threads,
    const std::function<double(const TensorView&, int64_t, std::span<uint8_t>)>& sum_of);

}  // namespace nibble
