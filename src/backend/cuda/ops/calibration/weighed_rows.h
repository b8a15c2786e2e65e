// Rows of an input scaled by the roots of their tokens' weights, for sums with weights.
#pragma once

#include <span>

#include "backend/cuda/ops/calibration/input_sums.h"
#include "backend/cuda/runtime/device_memory.h"
#include "model/taps.h"

namespace nibble::cuda {

/// The weights of tokens in the sums over one input, as TokenWeights has them.
struct DeviceTokenWeights {
  const int32_t* tokens = nullptr;  // ascending; null: 0, 1, 2, ...
  const float* weights = nullptr;   // null: every token counts once
  int32_t count = 0;
  float other = 1.0F;  // of tokens that are not among them
};

/// The rows of an input, and the places to which they go, scaled by the roots of their weights.
struct WeighedRows {
  const DeviceTokenWeights* weights = nullptr;  // [inputs]
  const int32_t* pass_row = nullptr;            // [assignments] row of the pass; null: the same
  int64_t first_token = 0;                      // the token of the pass's row 0
  uint16_t* x = nullptr;                        // [assignments, weighed_stride(cols)]
  int32_t* row = nullptr;                       // [assignments] as SumScratch::row, of x
};
constexpr int64_t weighed_stride(int64_t cols) { return (cols + 63) / 64 * 64; }
/// Scales the rows that count (see_rows came before); their sums are those with weights, up to the
/// rounding of sqrt(weight) x to BF16.
cudaError_t weigh_rows(const InputRows& in, const SumScratch& scratch, const WeighedRows& to,
                       cudaStream_t stream);

/// The weights of several inputs in memory of the card.
class DeviceTokenTable {
 public:
  /// nullptr: tokens of that input count once. Errors: no_memory.
  Result<void> place(DeviceContext& device, std::span<const TokenWeights* const> inputs,
                     cudaStream_t stream);
  const DeviceTokenWeights* inputs() const { return table_.as<DeviceTokenWeights>(); }

 private:
  DeviceBuffer table_, weights_, tokens_;
};

/// The buffer grows to `bytes` and never shrinks. Errors: no_memory.
Result<void> grow(DeviceContext& device, DeviceBuffer& buffer, int64_t bytes);

}  // namespace nibble::cuda
