// Coordinate descent on e^T H e of rows that GPTQ has rounded, e = q - w: block by block of 16
// columns, everything else as it is. With B the block of H and g = H e, the best q of a block were
// there no grid is q - B^-1 g; what another one loses against it is a sum of squares (V of
// gptq_descent.h), so GPTQ within the block finds codes for 16 scales at once, one a lane. Then
// each code in turn becomes the best given all others. F32, in the order of the columns; no step
// depends on the threads or on the other rows.
#pragma once

#include <algorithm>

#include "quantize/rounding/gptq_descent.h"
#include "quantize/rounding/gptq_feedback.inl.h"
#include "quantize/rounding/weighted_block.inl.h"

namespace nibble::detail {

/// A change must lower the loss by this share of what it would cost at the optimum: more than F32
/// sums are off by, so that the loss never rises.
inline constexpr float kDescentMargin = 0x1p-8F;

/// Sweeps that try other scales; few change later, and trying them is most of a sweep's work.
inline constexpr int kScaleSweeps = 2;

/// The E2M1 value under a scale that is nearest to a weight.
NIBBLE_INLINE float nearest_e2m1(float u, float scale) {
  float x = std::fabs(u) / scale;
  x = x < 6.0F ? x : 6.0F;
  const float offset = x < 2.0F ? 0x1p22F : (x < 4.0F ? 0x1p23F : 0x1p24F);
  const float q = (x + offset) - offset;
  return std::copysign(q * scale, u);
}

/// One block of one row. h: B in rows of `stride`, and its diagonal; v: V [16, 16].
struct DescentBlock {
  const float* h;
  int64_t stride;
  const float* diagonal;
  const float* v;
  alignas(64) float q[16];  // what the weights are rounded to
  alignas(64) float g[16];  // the gradient, kept up to date
};

/// True if going along delta lowers the loss. slope: delta^T g; cost: delta^T B delta.
NIBBLE_INLINE bool is_gain(float slope, float cost) {
  return -2.0F * slope - cost > kDescentMargin * cost;
}

/// The nearest of a scale's values to t, in each lane. x: |t| over the scale.
template <int W>
NIBBLE_INLINE void nearest_lanes(const Floats<W>& t, Floats<W> x, const Floats<W>& scale,
                                 Floats<W>& q) {
  saturate<W>(x);
  Ints<W> offset;
  rounding_offset<W>(x, offset);
  const Floats<W> rounded = ((x + (Floats<W>)offset) - (Floats<W>)offset) * scale;
  const auto sign = static_cast<int32_t>(0x80000000U);
  q = (Floats<W>)((Ints<W>)rounded | ((Ints<W>)t & sign));
}

/// The first weight from `from` on whose best value, the others as they are, lowers the loss; 16 if
/// there is none. deltas [16]: how far that value is.
template <int W>
NIBBLE_INLINE int first_gain(const DescentBlock& block, float scale, int from, float* deltas) {
  alignas(64) int32_t found[16];
  const Floats<W> scales = Floats<W>{} + scale;
  for (int lane = 0; lane < 16; lane += W) {
    Floats<W> q, g, h, best;
    Ints<W> index;
    std::memcpy(&q, block.q + lane, sizeof q);
    std::memcpy(&g, block.g + lane, sizeof g);
    std::memcpy(&h, block.diagonal + lane, sizeof h);
    for (int i = 0; i < W; ++i) index[i] = lane + i;
    const Floats<W> optimum = q - g / h;
    nearest_lanes<W>(optimum, (Floats<W>)((Ints<W>)optimum & 0x7FFFFFFF) / scales, scales, best);
    const Floats<W> delta = best - q, cost = delta * delta * h;
    const Ints<W> gain = (-2.0F * (delta * g) - cost > kDescentMargin * cost) & (index >= from);
    index = (index & gain) | (16 & ~gain);
    std::memcpy(deltas + lane, &delta, sizeof delta);
    std::memcpy(found + lane, &index, sizeof index);
  }
  return reduce_min<W>(found);
}

/// Each code in turn becomes the best, given the others.
template <int W>
NIBBLE_INLINE void descend_codes(DescentBlock& block, float scale) {
  alignas(64) float deltas[16];
  for (int j = 0; (j = first_gain<W>(block, scale, j, deltas)) < 16; ++j) {
    const float* row = block.h + j * block.stride;
    block.q[j] += deltas[j];
    for (int k = 0; k < 16; ++k) block.g[k] += deltas[j] * row[k];
  }
}

/// The block rounded under 16 scale codes from `lo` on, each weight's error taken off those after
/// it. target: the best q were there no grid. rounded [16, 16]: weight by weight, a lane for each
/// code; losses [16]: what each loses against the target.
template <int W>
NIBBLE_INLINE void round_under_scales(const float* target, const float* v, int lo, float* rounded,
                                      float* losses) {
  for (int lane = 0; lane < 16; lane += W) {
    Floats<W> scale, reciprocal, t[16], loss = {};
    load_scales<W>(lo + lane, scale, reciprocal);
    for (int i = 0; i < 16; ++i) t[i] = Floats<W>{} + target[i];
    for (int i = 0; i < 16; ++i) {
      Floats<W> q;
      const Floats<W> magnitude = (Floats<W>)((Ints<W>)t[i] & 0x7FFFFFFF);
      nearest_lanes<W>(t[i], magnitude * reciprocal, scale, q);
      const Floats<W> error = (t[i] - q) * (1.0F / v[i * 16 + i]);
      loss += error * error;
      for (int k = i + 1; k < 16; ++k) t[k] -= error * v[i * 16 + k];
      std::memcpy(rounded + i * 16 + lane, &q, sizeof q);
    }
    std::memcpy(losses + lane, &loss, sizeof loss);
  }
}

/// target = q - V^T V g.
NIBBLE_INLINE void block_target(const DescentBlock& block, float* target) {
  for (int k = 0; k < 16; ++k) target[k] = block.q[k];
  for (int i = 0; i < 16; ++i) {
    const float* row = block.v + i * 16;  // zeros before element i
    float products[16], sum = 0;
    for (int k = 0; k < 16; ++k) products[k] = row[k] * block.g[k];
    for (const float product : products) sum += product;
    for (int k = 0; k < 16; ++k) target[k] -= sum * row[k];
  }
}

/// Moves the block to `q` [16] if that lowers the loss.
NIBBLE_INLINE bool move_block(DescentBlock& block, const float* q) {
  alignas(64) float change[16] = {};  // of the gradient
  float delta[16], slope = 0, cost = 0;
  for (int j = 0; j < 16; ++j) delta[j] = q[j] - block.q[j];
  for (int j = 0; j < 16; ++j)
    for (int k = 0; k < 16; ++k) change[k] += delta[j] * block.h[j * block.stride + k];
  for (int j = 0; j < 16; ++j) {
    slope += delta[j] * block.g[j];
    cost += delta[j] * change[j];
  }
  if (!is_gain(slope, cost)) return false;
  for (int j = 0; j < 16; ++j) block.q[j] = q[j];
  for (int j = 0; j < 16; ++j) block.g[j] += change[j];
  return true;
}

/// The best of 16 scale codes, from half the scale on, with its codes; the same one if none gains.
template <int W>
NIBBLE_INLINE int descend_scale(DescentBlock& block, int code) {
  alignas(64) float target[16], losses[16], rounded[256];
  float q[16];
  block_target(block, target);
  const int lo = code - 8 < 1 ? 1 : code - 8;
  round_under_scales<W>(target, block.v, lo, rounded, losses);
  const int lane = least_lane<W>(losses);
  for (int i = 0; i < 16; ++i) q[i] = rounded[i * 16 + lane];
  return move_block(block, q) ? lo + lane : code;
}

/// Rows as GPTQ left them, columns in the factor's order.
struct DescentRows {
  int rows;
  float* u;         // [rows, K]: what they are rounded to
  float* gradient;  // [rows, K]: H (q - w)
  const DescentMoment& moment;
  const int64_t* order;  // [K/16]: place of a block in the file
  uint8_t* scales;       // [rows, K/16] as in the file
};

/// Adds to the gradient of a row the sum over j of deltas[j] times row j of `h` [16, K].
template <int W>
NIBBLE_INLINE void add_changes(const float* h, const float* deltas, int64_t cols, float* gradient) {
  const float* rows[16];
  float factors[16];
  int count = 0;
  for (int j = 0; j < 16; ++j) {
    if (deltas[j] == 0.0F) continue;
    rows[count] = h + j * cols;
    factors[count++] = deltas[j];
  }
  for (int64_t k = 0; k < cols; k += W) {
    Floats<W> sum, row;
    std::memcpy(&sum, gradient + k, sizeof sum);
    for (int i = 0; i < count; ++i) {
      std::memcpy(&row, rows[i] + k, sizeof row);
      sum += row * factors[i];
    }
    std::memcpy(gradient + k, &sum, sizeof sum);
  }
}

enum class Changes : uint8_t { codes, codes_and_scale };

/// The block of row `r` from column `b` on; true if it changed.
template <int W>
NIBBLE_INLINE bool descend_block(const DescentRows& tile, int r, int64_t b, Changes changes) {
  const int64_t cols = tile.moment.cols;
  const float* h = tile.moment.moment.data() + b * cols;
  float* u = tile.u + r * cols + b;
  float* gradient = tile.gradient + r * cols;
  uint8_t& scale = tile.scales[r * (cols / 16) + tile.order[b / 16]];
  DescentBlock block = {.h = h + b,
                        .stride = cols,
                        .diagonal = tile.moment.diagonal.data() + b,
                        .v = tile.moment.block_factors.data() + b * 16,
                        .q = {},
                        .g = {}};
  std::memcpy(block.q, u, sizeof block.q);
  std::memcpy(block.g, gradient + b, sizeof block.g);
  const int code = changes == Changes::codes ? scale : descend_scale<W>(block, scale);
  descend_codes<W>(block, kBlockTables.scale[static_cast<size_t>(code)]);
  float deltas[16];
  for (int j = 0; j < 16; ++j) deltas[j] = block.q[j] - u[j];
  if (std::all_of(deltas, deltas + 16, [](float delta) { return delta == 0.0F; })) return false;
  scale = static_cast<uint8_t>(code);
  std::memcpy(u, block.q, sizeof block.q);
  add_changes<W>(h, deltas, cols, gradient);
  return true;
}

/// Sweeps over the blocks until nothing changes in a row, or `sweeps` times.
template <int W>
NIBBLE_INLINE void descend(const DescentRows& tile, int sweeps) {
  bool active[kFeedbackRows];
  std::fill_n(active, kFeedbackRows, true);
  for (int sweep = 0; sweep < sweeps; ++sweep) {
    const Changes changes = sweep < kScaleSweeps ? Changes::codes_and_scale : Changes::codes;
    bool changed[kFeedbackRows] = {};
    for (int64_t b = 0; b < tile.moment.cols; b += 16)
      for (int r = 0; r < tile.rows; ++r)
        if (active[r] && descend_block<W>(tile, r, b, changes)) changed[r] = true;
    std::copy_n(changed, kFeedbackRows, active);
  }
}

}  // namespace nibble::detail
