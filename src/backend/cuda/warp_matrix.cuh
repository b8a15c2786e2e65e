// The inner product of generation arithmetic: one warp multiplies 16 rows of a weight matrix with
// 8 tokens over 256 columns, weights straight from device memory into mma fragments. Bound by the
// bytes of the weights. The order of the sums of an output depends on the shape of the matrix
// alone, so a row's result is the same alone and in any batch.
//
// Lane (g, t) = (lane / 4, lane % 4) holds rows g and g + 8 and reads 16 consecutive bytes of each
// per load; which columns those are differs by format, and x is read at the same columns.
#pragma once

#include "backend/cuda/device_math.cuh"
#include "backend/cuda/device_weights.h"

namespace nibble::cuda {

/// d [16, 8] += a [16, 16] b [16, 8].
__device__ __forceinline__ void multiply_fragment(float (&d)[4], uint32_t a0, uint32_t a1,
                                                  uint32_t a2, uint32_t a3, uint32_t b0,
                                                  uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/// Weights are read once: past the L1 cache, which is left to the activations.
__device__ __forceinline__ uint4 load_weights_16(const uint8_t* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}
__device__ __forceinline__ uint32_t load_weights_4(const uint8_t* from) {
  uint32_t v;
  asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(v) : "l"(from));
  return v;
}

__device__ __forceinline__ uint32_t multiply_pair(uint32_t a, uint32_t b) {
  const __nv_bfloat162 product = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&a),
                                         *reinterpret_cast<const __nv_bfloat162*>(&b));
  return *reinterpret_cast<const uint32_t*>(&product);
}

/// Two E2M1 codes of byte `index` of a word as BF16 times 2^-126 (the fields fall into place).
__device__ __forceinline__ uint32_t widen_e2m1(uint32_t word, int index) {
  const uint32_t both = ((word >> (8 * index)) & 0xFFU) * 0x01001000U;
  return (both & 0x80008000U) | ((both >> 6) & 0x01C001C0U);
}
/// What E2M1 fields times this are: code * scale * 2^-7. Exact: at most 6 significant bits.
inline constexpr float kNvfp4Unscale = 128.0F;
__device__ __forceinline__ uint32_t nvfp4_multiplier(uint32_t e4m3) {
  // (e4m3 << 20) as F32 is the scale times 2^-120; the target is the scale times 2^119.
  float scale = __uint_as_float((e4m3 & 0x7FU) << 20) * 0x1p120F * 0x1p119F;
  if ((e4m3 & 0x7FU) == 0x7FU) scale = __uint_as_float(0x7FC00000U);
  return to_bf16_pair(scale, scale);
}
/// Two E4M3 codes, bytes 2 * index and 2 * index + 1 of a word, as BF16.
__device__ __forceinline__ uint32_t widen_e4m3(uint32_t word, int index) {
  const uint32_t spread = __byte_perm(word, 0, index == 0 ? 0x1404 : 0x3424);
  const uint32_t fields = (spread & 0x80008000U) | ((spread >> 4) & 0x07F007F0U);
  return multiply_pair(fields, 0x7B807B80U);  // 2^120
}

/// Which rows of a matrix a lane reads.
struct RowPointers {
  const uint8_t* values = nullptr;
  const uint8_t* scales = nullptr;  // nvfp4
};

__device__ __forceinline__ RowPointers row_of(const DeviceLinear& w, int64_t row) {
  RowPointers p;
  p.values = w.values + row * value_bytes(w.format, w.cols);
  if (w.format == Format::nvfp4) p.scales = w.scales + row * (w.cols / 16);
  return p;
}

constexpr int load_count(Format format) {
  return format == Format::bf16 ? 8 : format == Format::fp8 ? 4 : 2;
}

/// The raw bytes of 16 rows x 256 columns, spread over a warp. kLoads: of the widest format used.
template <int kLoads>
struct RawSlice {
  uint4 low[kLoads], high[kLoads];  // rows g and g + 8
  uint32_t low_scales, high_scales;
};

template <Format kFormat, int kLoads>
__device__ __forceinline__ void load_slice(const RowPointers& low, const RowPointers& high,
                                           int slice, RawSlice<kLoads>& raw) {
  const int t = threadIdx.x % 4;
  const int64_t at = static_cast<int64_t>(slice) * value_bytes(kFormat, kColumnPad) + 16 * t;
#pragma unroll
  for (int i = 0; i < load_count(kFormat); ++i) {
    raw.low[i] = load_weights_16(low.values + at + 64 * i);
    raw.high[i] = load_weights_16(high.values + at + 64 * i);
  }
  if constexpr (kFormat == Format::nvfp4) {
    raw.low_scales = load_weights_4(low.scales + slice * 16 + 4 * t);
    raw.high_scales = load_weights_4(high.scales + slice * 16 + 4 * t);
  }
}

/// First of the 8 columns that a lane multiplies in step `unit` (0..7) of a slice.
template <Format kFormat>
__device__ __forceinline__ int unit_column(int unit) {
  const int t = threadIdx.x % 4;
  if constexpr (kFormat == Format::nvfp4) return 128 * (unit / 4) + 32 * t + 8 * (unit % 4);
  if constexpr (kFormat == Format::fp8) return 64 * (unit / 2) + 16 * t + 8 * (unit % 2);
  return 32 * unit + 8 * t;
}

__device__ __forceinline__ uint32_t word_of(const uint4& v, int index) {
  return index == 0 ? v.x : index == 1 ? v.y : index == 2 ? v.z : v.w;
}

/// Multipliers of the two scale groups of a lane's 32 columns in half `half` of a slice. The scale
/// bytes of 256 columns lie 4 in each of the 4 lanes of a row.
__device__ __forceinline__ void group_multipliers(uint32_t scales, int half, uint32_t (&out)[2]) {
  const int lane = threadIdx.x % 32;
  const int t = lane % 4;
  const uint32_t word = __shfl_sync(kAllLanes, scales, (lane & ~3) | (2 * half + t / 2));
  const uint32_t pair = word >> (16 * (t % 2));
  out[0] = nvfp4_multiplier(pair & 0xFFU);
  out[1] = nvfp4_multiplier((pair >> 8) & 0xFFU);
}

/// acc[j] += rows x tokens of n-tile j over the slice. x[j]: the row of token g of n-tile j, moved
/// to the first column of the slice. `low_factor`, `high_factor`: scales of the two 128-column
/// halves (fp8; 1 where there are none).
template <Format kFormat, int kLoads, int kTiles>
__device__ __forceinline__ void multiply_slice(const RawSlice<kLoads>& raw,
                                               const uint16_t* const (&x)[kTiles],
                                               const float (&factors)[2], float (&acc)[kTiles][4]) {
  uint32_t low_scale[2];
  uint32_t high_scale[2];
  float part[kTiles][4];
#pragma unroll
  for (int unit = 0; unit < 8; ++unit) {
    if (unit % 4 == 0) {
      if constexpr (kFormat == Format::nvfp4) {
        group_multipliers(raw.low_scales, unit / 4, low_scale);
        group_multipliers(raw.high_scales, unit / 4, high_scale);
      }
      if constexpr (kFormat == Format::fp8) {
#pragma unroll
        for (int j = 0; j < kTiles; ++j) part[j][0] = part[j][1] = part[j][2] = part[j][3] = 0.0F;
      }
    }
    uint32_t low[4];
    uint32_t high[4];
    if constexpr (kFormat == Format::nvfp4) {
      const uint32_t low_word = word_of(raw.low[unit / 4], unit % 4);
      const uint32_t high_word = word_of(raw.high[unit / 4], unit % 4);
      const int group = unit % 4 / 2;
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        low[p] = multiply_pair(widen_e2m1(low_word, p), low_scale[group]);
        high[p] = multiply_pair(widen_e2m1(high_word, p), high_scale[group]);
      }
    } else if constexpr (kFormat == Format::fp8) {
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        const int word = 2 * (unit % 2) + p / 2;
        low[p] = widen_e4m3(word_of(raw.low[unit / 2], word), p % 2);
        high[p] = widen_e4m3(word_of(raw.high[unit / 2], word), p % 2);
      }
    } else {
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        low[p] = word_of(raw.low[unit], p);
        high[p] = word_of(raw.high[unit], p);
      }
    }
    const int column = unit_column<kFormat>(unit);
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const uint4 b = *reinterpret_cast<const uint4*>(x[j] + column);
      float(&sum)[4] = kFormat == Format::fp8 ? part[j] : acc[j];
      multiply_fragment(sum, low[0], high[0], low[1], high[1], b.x, b.y);
      multiply_fragment(sum, low[2], high[2], low[3], high[3], b.z, b.w);
    }
    if constexpr (kFormat == Format::fp8) {
      if (unit % 4 == 3) {
#pragma unroll
        for (int j = 0; j < kTiles; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i) acc[j][i] = fmaf(factors[unit / 4], part[j][i], acc[j][i]);
      }
    }
  }
}

}  // namespace nibble::cuda
