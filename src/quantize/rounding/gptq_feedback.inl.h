// The loop that GPTQ has for every format: a tile of rows, block of 16 columns by block, each
// weight rounded in turn and its error taken off those after it. F32, each weight corrected in the
// order of the columns; no step depends on the threads or on the other rows.
#pragma once

#include "quantize/rounding/round_path.inl.h"

namespace nibble::detail {

/// Rows worked on together: the factor is read once for all of them.
inline constexpr int kFeedbackRows = 8;

/// Rounds 16 weights one by one and corrects those after them. quantise(j, u_j) gives what u_j
/// becomes, and u has that afterwards. errors: what was lost, over U_jj. `upper` is the factor's
/// element on the diagonal at the block's first column, `stride` the length of its rows.
template <typename Quantise>
NIBBLE_INLINE void feed_back(float* u, const float* upper, int64_t stride, float* errors,
                             Quantise quantise) {
  for (int j = 0; j < 16; ++j) {
    const float rounded = quantise(j, u[j]);
    errors[j] = (u[j] - rounded) / upper[j * stride + j];
    u[j] = rounded;
    for (int k = j + 1; k < 16; ++k) u[k] -= errors[j] * upper[j * stride + k];
  }
}

/// At most kFeedbackRows rows, columns in the factor's order.
struct FeedbackRows {
  int rows;
  int64_t cols;  // K
  float* u;      // [rows, K]: weights, and then what they are rounded to
  /// [rows, K] becomes H (q - w), the gradient of half the loss; or nullptr.
  float* gradient = nullptr;
};

/// Takes off the rows of `out` [rows, K], in columns `begin` to `end`, the sum over j of
/// errors[row, j] times row j of `factors` [16, K]; one term after the other.
template <int W>
NIBBLE_INLINE void subtract_products(const float* factors, const float* errors, int64_t begin,
                                     int64_t end, const FeedbackRows& tile, float* out) {
  for (int64_t k = begin; k < end; k += W) {
    Floats<W> factor[16];
    for (int j = 0; j < 16; ++j)
      std::memcpy(&factor[j], factors + j * tile.cols + k, sizeof factor[j]);
    for (int r = 0; r < tile.rows; ++r) {
      Floats<W> rest;
      std::memcpy(&rest, out + r * tile.cols + k, sizeof rest);
      for (int j = 0; j < 16; ++j) rest -= factor[j] * errors[r * 16 + j];
      std::memcpy(out + r * tile.cols + k, &rest, sizeof rest);
    }
  }
}

/// Takes M times the errors of the block from column `b` on off the gradient, which is zero from
/// there on. `factors` is row b of GptqFactor's.
template <int W>
NIBBLE_INLINE void subtract_from_gradient(const float* factors, const float* errors, int64_t b,
                                          const FeedbackRows& tile) {
  subtract_products<W>(factors, errors, 0, b, tile, tile.gradient);
  for (int r = 0; r < tile.rows; ++r) {
    float* gradient = tile.gradient + r * tile.cols + b;
    for (int j = 0; j < 16; ++j) {
      const float* row = factors + j * tile.cols + b;
      const float error = errors[r * 16 + j];
      for (int i = 0; i < j; ++i) gradient[i] -= error * row[i];
      gradient[j] = -(error / row[j]);
    }
  }
}

/// Rounds the rows under GptqFactor's factors [K, K]. round_block(row, b, errors) rounds the 16
/// weights from column b on with feed_back.
template <int W, typename RoundBlock>
NIBBLE_INLINE void feed_back_rows(const float* factors, const FeedbackRows& tile,
                                  RoundBlock round_block) {
  for (int64_t b = 0; b < tile.cols; b += 16) {
    alignas(64) float errors[kFeedbackRows * 16];
    for (int r = 0; r < tile.rows; ++r) round_block(r, b, errors + r * 16);
    const float* rows = factors + b * tile.cols;
    subtract_products<W>(rows, errors, b + 16, tile.cols, tile, tile.u);
    if (tile.gradient != nullptr) subtract_from_gradient<W>(rows, errors, b, tile);
  }
}

}  // namespace nibble::detail
