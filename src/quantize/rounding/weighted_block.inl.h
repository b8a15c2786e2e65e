// The search for a block's scale when errors of columns weigh differently: the pieces that the
// algorithms with data share, on top of nvfp4_block.inl.h. The same bytes with every W.
#pragma once

#include "quantize/rounding/round_path.inl.h"

namespace nibble::detail {

/// One block of 16 weights over 2^exponent, ready to be searched.
struct SearchBlock {
  alignas(64) float exact[16];  // magnitudes, 20 leading bits
  float amax;
  int lo;  // first code of the highest window: at or below amax/8.5, at least 1
};

template <int W>
NIBBLE_INLINE SearchBlock search_block(const float* u) {
  SearchBlock block;
  block.amax = block_amax<W>(u);
  block.lo = first_scale_code(block.amax);
  for (int i = 0; i < 16; ++i)
    block.exact[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(u[i]) & 0x7FFFFFF0U);
  return block;
}

/// Errors |u| - q s of one weight under W codes from `lo` on.
template <int W>
NIBBLE_INLINE void lane_errors(float exact, const Floats<W>& scale, const Floats<W>& reciprocal,
                               Floats<W>& error) {
  const Floats<W> u = Floats<W>{} + exact;
  Floats<W> x = u * reciprocal;
  saturate<W>(x);
  Ints<W> offset;
  rounding_offset<W>(x, offset);
  const Floats<W> q = (x + (Floats<W>)offset) - (Floats<W>)offset;
  error = u - q * scale;
}

template <int W>
NIBBLE_INLINE void load_scales(int lo, Floats<W>& scale, Floats<W>& reciprocal) {
  std::memcpy(&scale, &kBlockTables.scale[static_cast<size_t>(lo)], sizeof scale);
  std::memcpy(&reciprocal, &kBlockTables.reciprocal[static_cast<size_t>(lo)], sizeof reciprocal);
}

/// Sum of weight_i e_i^2, in column order, under 16 codes from `lo` on.
template <int W>
NIBBLE_INLINE void diagonal_errors(const float* exact, const float* weight, int lo, float* out) {
  for (int lane = 0; lane < 16; lane += W) {
    Floats<W> scale, reciprocal, errors = {};
    load_scales<W>(lo + lane, scale, reciprocal);
    for (int i = 0; i < 16; ++i) {
      Floats<W> e;
      lane_errors<W>(exact[i], scale, reciprocal, e);
      errors += e * e * weight[i];
    }
    std::memcpy(out + lane, &errors, sizeof errors);
  }
}

/// The error of saturated weights alone under `code`: no lower code does better than this.
NIBBLE_INLINE float saturation_loss(const float* exact, const float* weight, int code) {
  const float scale = kBlockTables.scale[static_cast<size_t>(code)];
  float loss = 0;
  for (int i = 0; i < 16; ++i) {
    const float over = exact[i] - 6.0F * scale;
    if (over > 0.0F) loss += over * over * weight[i];
  }
  return loss;
}

/// The code with the least weighted error of all 126, the lowest if several tie. Above the highest
/// window none can win (nvfp4_block.inl.h: the argument holds weight by weight). Below it windows
/// are searched until saturation alone costs more than the best: it only grows further down, term
/// by term, and so do F32 sums of it.
template <int W>
NIBBLE_INLINE int diagonal_code(const SearchBlock& block, const float* weight) {
  alignas(64) float errors[16];
  diagonal_errors<W>(block.exact, weight, block.lo, errors);
  const int lane = least_lane<W>(errors);
  int best = block.lo + lane;
  float least = errors[lane];
  for (int top = block.lo - 1; top >= 1; top -= 16) {
    if (saturation_loss(block.exact, weight, top) > least) break;
    const int lo = top - 15 < 1 ? 1 : top - 15;
    diagonal_errors<W>(block.exact, weight, lo, errors);
    const int found = least_lane<W>(errors);
    if (errors[found] > least) continue;  // of a tie the lower code
    least = errors[found];
    best = lo + found;
  }
  return best;
}

/// Codes of a block under a scale code, 8 bytes; and what it adds to the statistics.
template <int W>
NIBBLE_INLINE uint64_t encode_block(const float* u, const SearchBlock& block, int code,
                                    RoundStatistics& statistics) {
  alignas(64) int32_t elements[16] = {};
  for (int i = 0; i < 16; i += W)
    element_codes<W>(u + i, kBlockTables.scale[static_cast<size_t>(code)], elements + i);
  const uint64_t packed = pack_codes(elements);
  statistics.zero_blocks += block.amax == 0.0F;
  statistics.flushed_blocks += packed == 0 && block.amax != 0.0F;
  return packed;
}

/// Squared error of a block under one code.
template <int W>
NIBBLE_INLINE float code_error(const float* exact, int code) {
  alignas(64) float squares[16];
  for (int i = 0; i < 16; i += W) {
    Floats<W> u;
    std::memcpy(&u, exact + i, sizeof u);
    Floats<W> x = u * kBlockTables.reciprocal[static_cast<size_t>(code)];
    saturate<W>(x);
    Ints<W> offset;
    rounding_offset<W>(x, offset);
    const Floats<W> q = (x + (Floats<W>)offset) - (Floats<W>)offset;
    const Floats<W> e = u - q * kBlockTables.scale[static_cast<size_t>(code)];
    const Floats<W> square = e * e;
    std::memcpy(squares + i, &square, sizeof square);
  }
  float total = 0;
  for (const float square : squares) total += square;
  return total;
}

/// Squares of the weights, of their errors under `code`, and under the code nearest to amax/6.
template <int W>
NIBBLE_INLINE void add_errors(const SearchBlock& block, int code, RoundStatistics& statistics) {
  const int plain = code_nearest(block.amax / 6.0F);
  statistics.error_squares += static_cast<double>(code_error<W>(block.exact, code));
  statistics.amax_error_squares += static_cast<double>(code_error<W>(block.exact, plain));
  float square = 0;
  for (const float x : block.exact) square += x * x;
  statistics.weight_squares += static_cast<double>(square);
}

/// Adds the errors of a rounded block against the weights themselves.
template <int W>
NIBBLE_INLINE void add_true_errors(const float* original, const float* rounded,
                                   RoundStatistics& statistics) {
  const SearchBlock block = search_block<W>(original);
  RoundStatistics plain;
  add_errors<W>(block, code_nearest(block.amax / 6.0F), plain);
  statistics.weight_squares += plain.weight_squares;
  statistics.amax_error_squares += plain.amax_error_squares;
  float error = 0;
  for (int i = 0; i < 16; ++i) error += (original[i] - rounded[i]) * (original[i] - rounded[i]);
  statistics.error_squares += static_cast<double>(error);
}

/// A row, block by block, each under the code that code_of(search block, its index) chooses.
template <int W, typename CodeOf>
NIBBLE_INLINE void round_searched_row(const Row& row, RoundStatistics& statistics, CodeOf code_of) {
  for (int64_t b = 0; b < row.cols / 16; ++b) {
    const float* u = row.u + b * 16;
    const SearchBlock block = search_block<W>(u);
    const int code = code_of(block, b);
    const uint64_t packed = encode_block<W>(u, block, code, statistics);
    std::memcpy(row.codes + b * 8, &packed, 8);
    row.scales[b] = block.amax == 0.0F ? kZeroBlockScale : static_cast<uint8_t>(code);
    add_errors<W>(block, code, statistics);
  }
}

}  // namespace nibble::detail
