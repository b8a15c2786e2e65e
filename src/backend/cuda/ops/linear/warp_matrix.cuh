// The inner product of generation arithmetic: one warp multiplies 16 rows of a weight matrix with
// 8 tokens over 256 columns, weights straight from device memory into mma fragments. Bound by the
// bytes of the weights. The order of the sums of an output depends on the shape of the matrix
// alone, so a row's result is the same alone and in any batch.
//
// Lane (g, t) = (lane / 4, lane % 4) holds rows g and g + 8 and reads 16 consecutive bytes of each
// per load; which columns those are differs by format, and x (stored as x_place says) is read at
// the same columns.
#pragma once

#include "backend/cuda/ops/linear/linear_shapes.h"
#include "backend/cuda/ptx/copy.cuh"
#include "backend/cuda/ptx/device_math.cuh"
#include "backend/cuda/ptx/mma.cuh"
#include "backend/cuda/weights/code_words.h"
#include "backend/cuda/weights/device_weights.h"

namespace nibble::cuda {

__device__ __forceinline__ uint32_t load_weights_2(const uint8_t* from) {
  return __ldg(reinterpret_cast<const unsigned short*>(from));
}

/// Multiplies the pairs of a word of reordered codes (code_words.h) by `scale`.
__device__ __forceinline__ void widen_e2m1(uint32_t word, uint32_t scale, uint32_t (&out)[4]) {
  const E2m1Pairs pairs = e2m1_pairs(word);
#pragma unroll
  for (int j = 0; j < 4; ++j) out[j] = multiply_pair(pairs.of[j], scale);
}
/// E2M1 fields times this multiplier are code * scale * 2^-8. Exact: at most 6 significant bits.
inline constexpr float kNvfp4Unscale = 256.0F;
__device__ __forceinline__ uint32_t nvfp4_multiplier(uint32_t e4m3) {
  // (e4m3 << 4) as BF16 is the scale times 2^-120; the target is the scale times 2^118. Scales are
  // neither negative nor NaN: the loader refuses those.
  constexpr uint32_t k2p119 = 0x7B007B00U;
  return multiply_pair(multiply_pair(e4m3 * 0x00100010U, k2p119), k2p119);
}
/// Returns the multiplier of the sums of a row, with what widened codes leave out; the factors of
/// 128 x 128 blocks are not in it. The factors of the matrix begin `begin` floats after the first.
__device__ __forceinline__ float plain_factor(const DeviceLinear& w, int64_t begin, int row) {
  if (w.layout == FactorLayout::row) return w.factors[begin + row];
  if (w.layout != FactorLayout::scalar) return 1.0F;
  return w.format == Format::nvfp4 ? w.factors[begin] * kNvfp4Unscale : w.factors[begin];
}
/// Reads the factors of a slice of FP8 weights in row `row`, if each 128 x 128 block has one; those
/// of the matrix are at `f`.
__device__ __forceinline__ void block_factors(const DeviceLinear& w, const float* f, int row,
                                              int slice, float (&factors)[2]) {
  if (w.layout != FactorLayout::block128) return;
  f = f + row / 128 * (w.cols / 128) + 2 * slice;
  factors[0] = f[0];
  factors[1] = f[1];
}

/// Returns the pairs of two words of reordered E4M3 codes.
__device__ __forceinline__ void widen_e4m3(uint32_t first, uint32_t second, uint32_t (&out)[4]) {
  constexpr uint32_t k2p120 = 0x7B807B80U;
#pragma unroll
  for (int j = 0; j < 4; ++j)
    out[j] = multiply_pair(e4m3_pairs(j < 2 ? first : second).of[j % 2], k2p120);
}

/// RowPointers has the rows of a matrix that a lane reads.
struct RowPointers {
  const uint8_t* values = nullptr;
  const uint8_t* scales = nullptr;  // nvfp4
};

template <Format kFormat>
__device__ __forceinline__ RowPointers row_of(const DeviceLinear& w, int64_t row) {
  RowPointers p;
  p.values = w.values + row * value_bytes(kFormat, w.cols);
  if constexpr (kFormat == Format::nvfp4) p.scales = w.scales + row * (w.cols / 16);
  return p;
}

/// 16-byte loads of one row of a slice by one lane.
constexpr int load_count(Format format) { return format == Format::nvfp4 ? 2 : 4; }
/// The raw bytes of 16 rows of a slice, spread over a warp. kLoads: of the widest format used.
template <int kLoads>
struct RawSlice {
  uint4 low[kLoads], high[kLoads];         // rows g and g + 8
  uint32_t low_scales[2], high_scales[2];  // nvfp4: of a lane's two groups in each half
};

template <Format kFormat, int kLoads>
__device__ __forceinline__ void load_slice(const RowPointers& low, const RowPointers& high,
                                           int slice, RawSlice<kLoads>& raw) {
  const int t = threadIdx.x % 4;
  const int64_t at =
      static_cast<int64_t>(slice) * value_bytes(kFormat, slice_columns(kFormat)) + 16 * t;
#pragma unroll
  for (int i = 0; i < load_count(kFormat); ++i) {
    raw.low[i] = load_16_once(low.values + at + 64 * i);
    raw.high[i] = load_16_once(high.values + at + 64 * i);
  }
  if constexpr (kFormat == Format::nvfp4) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      raw.low_scales[half] = load_weights_2(low.scales + slice * 16 + 8 * half + 2 * t);
      raw.high_scales[half] = load_weights_2(high.scales + slice * 16 + 8 * half + 2 * t);
    }
  }
}

/// First of the 8 columns that lanes with lane % 4 == t multiply in step `unit` of a slice.
template <Format kFormat>
__device__ __forceinline__ int fragment_column(int unit, int t) {
  if constexpr (kFormat == Format::nvfp4) return 128 * (unit / 4) + 32 * t + 8 * (unit % 4);
  if constexpr (kFormat == Format::fp8) return 64 * (unit / 2) + 16 * t + 8 * (unit % 2);
  return 32 * unit + 8 * t;
}
template <Format kFormat>
__device__ __forceinline__ int unit_column(int unit) {
  return fragment_column<kFormat>(unit, threadIdx.x % 4);
}

__device__ __forceinline__ uint32_t word_of(const uint4& v, int index) {
  return index == 0 ? v.x : index == 1 ? v.y : index == 2 ? v.z : v.w;
}

/// Multipliers of the two scale groups of a lane's 32 columns in a half of a slice.
__device__ __forceinline__ void group_multipliers(uint32_t pair, uint32_t (&out)[2]) {
  out[0] = nvfp4_multiplier(pair & 0xFFU);
  out[1] = nvfp4_multiplier(pair >> 8);
}

/// The 8 columns of a lane in a row as BF16: pair j holds columns j and j + 4.
template <Format kFormat>
__device__ __forceinline__ void widen_row(const uint4* raw, int unit, uint32_t scale,
                                          uint32_t (&out)[4]) {
  if constexpr (kFormat == Format::nvfp4) {
    widen_e2m1(word_of(raw[unit / 4], unit % 4), scale, out);
  } else if constexpr (kFormat == Format::fp8) {
    widen_e4m3(word_of(raw[unit / 2], 2 * (unit % 2)), word_of(raw[unit / 2], 2 * (unit % 2) + 1),
               out);
  } else {
    const uint4& v = raw[unit];
    out[0] = __byte_perm(v.x, v.z, 0x5410), out[1] = __byte_perm(v.x, v.z, 0x7632);
    out[2] = __byte_perm(v.y, v.w, 0x5410), out[3] = __byte_perm(v.y, v.w, 0x7632);
  }
}

/// UnitRows has the codes of a unit's A fragments: 8 columns of rows g and g + 8.
struct UnitRows {
  uint32_t low[4], high[4];
};

template <Format kFormat, int kLoads>
__device__ __forceinline__ void widen_unit(const RawSlice<kLoads>& raw, int unit,
                                           uint32_t low_scale, uint32_t high_scale,
                                           UnitRows& rows) {
  widen_row<kFormat>(raw.low, unit, low_scale, rows.low);
  widen_row<kFormat>(raw.high, unit, high_scale, rows.high);
}

/// Adds rows x tokens of n-tile j over the slice to acc[j]. x[j] is the row of token g of n-tile j,
/// moved to the first column of the slice. `factors` are the scales of the two 128-column halves
/// (fp8; 1 where there are none).
template <Format kFormat, int kLoads, int kTiles>
__device__ __forceinline__ void multiply_slice(const RawSlice<kLoads>& raw,
                                               const uint16_t* const (&x)[kTiles],
                                               const float (&factors)[2], float (&acc)[kTiles][4]) {
  uint32_t low_scale[2] = {};
  uint32_t high_scale[2] = {};
  float part[kTiles][4];
  constexpr int kUnits = slice_columns(kFormat) / 32;
  uint4 now[kTiles];  // x of this unit; that of the next is being loaded
#pragma unroll
  for (int j = 0; j < kTiles; ++j)
    now[j] = *reinterpret_cast<const uint4*>(x[j] + unit_column<kFormat>(0));
#pragma unroll
  for (int unit = 0; unit < kUnits; ++unit) {
    if constexpr (kFormat == Format::nvfp4) {
      if (unit % 4 == 0) {
        group_multipliers(raw.low_scales[unit / 4], low_scale);
        group_multipliers(raw.high_scales[unit / 4], high_scale);
      }
    }
    if constexpr (kFormat == Format::fp8) {
      if (unit % 4 == 0)
#pragma unroll
        for (int j = 0; j < kTiles; ++j) part[j][0] = part[j][1] = part[j][2] = part[j][3] = 0.0F;
    }
    uint4 next[kTiles];
    if (unit + 1 < kUnits)
#pragma unroll
      for (int j = 0; j < kTiles; ++j)
        next[j] = *reinterpret_cast<const uint4*>(x[j] + unit_column<kFormat>(unit + 1));
    UnitRows rows;
    widen_unit<kFormat>(raw, unit, low_scale[unit % 4 / 2], high_scale[unit % 4 / 2], rows);
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const uint4 b = now[j];
      now[j] = next[j];
      float(&sum)[4] = kFormat == Format::fp8 ? part[j] : acc[j];
      mma_16x8x16(sum, rows.low[0], rows.high[0], rows.low[1], rows.high[1], b.x, b.y);
      mma_16x8x16(sum, rows.low[2], rows.high[2], rows.low[3], rows.high[3], b.z, b.w);
    }
    if constexpr (kFormat == Format::fp8) {
      if (unit % 4 == 3)
#pragma unroll
        for (int j = 0; j < kTiles; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i) acc[j][i] = fmaf(factors[unit / 4], part[j][i], acc[j][i]);
    }
  }
}

/// The slices of a matrix in the order in which one warp alone makes the same sums as warps that
/// take a part each: 0, parts, 2 parts, ..., then 1, parts + 1, ...
__device__ __forceinline__ int next_slice(int slice, int slices, int parts) {
  return slice + parts < slices ? slice + parts : slice % parts + 1;
}
/// True if a slice is the last of its part.
__device__ __forceinline__ bool ends_part(int slice, int slices, int parts) {
  return slice + parts >= slices;
}

}  // namespace nibble::cuda
