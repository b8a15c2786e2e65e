// Generation arithmetic with the inputs resident in shared memory: a block shares the columns of a
// matrix, and warp w multiplies slice w of every tile of 16 rows that the block takes. The inputs
// lie in shared memory as the fragments that the tensor cores need, from tile to tile, so the inner
// loop reads nothing but weights from device memory. The warps' sums of a tile are stored in shared
// memory and added in the order of the slices. This file also has the RMS norm of a single row as a
// block's prologue. Which slices a matrix has depends on its shape alone.
#pragma once

#include "backend/cuda/ops/linear/linear.h"
#include "backend/cuda/ops/linear/warp_matrix.cuh"

namespace nibble::cuda {

/// One matrix of a launch, and the first of its tiles in the list of all.
struct LinearSegment {
  LinearOutput out;
  int32_t tile_begin = 0;
};
__device__ __forceinline__ const LinearSegment& segment_of(const LinearSegment* segments, int count,
                                                           int tile) {
  int s = 0;
#pragma unroll 1
  while (s + 1 < count && tile >= segments[s + 1].tile_begin) ++s;
  return segments[s];
}

/// FP8 weights keep the exponents that they have where they lie, 2^-120 times what they stand for,
/// and their inputs are made larger by 2^96, so that products are normal numbers. Inputs of 2^32
/// and more become infinite, so such a sequence ends with an error.
inline constexpr float kFp8Unscale = 0x1p24F;
/// Returns the multiplier of sums of products of codes, beside the factors of the matrix.
__device__ __forceinline__ float resident_unscale(Format format) {
  return format == Format::fp8 ? kFp8Unscale : format == Format::nvfp4 ? kNvfp4Unscale : 1.0F;
}
template <Format kFormat>
__device__ __forceinline__ uint32_t scale_inputs(uint32_t pair) {
  return kFormat == Format::fp8 ? multiply_pair(pair, 0x6F806F80U) : pair;
}

/// x has 8 columns in the order 0 4 1 5 2 6 3 7, the pairs of reordered codes (code_words.h); bf16
/// pairs adjacent columns.
template <Format kFormat>
__device__ __forceinline__ uint4 pair_inputs(uint4 v) {
  constexpr uint32_t kLow = 0x5410;
  constexpr uint32_t kHigh = 0x7632;
  if constexpr (kFormat == Format::bf16)
    return make_uint4(__byte_perm(v.x, v.y, kLow), __byte_perm(v.z, v.w, kLow),
                      __byte_perm(v.x, v.y, kHigh), __byte_perm(v.z, v.w, kHigh));
  return make_uint4(scale_inputs<kFormat>(v.x), scale_inputs<kFormat>(v.y),
                    scale_inputs<kFormat>(v.z), scale_inputs<kFormat>(v.w));
}
/// Returns four adjacent columns of one lane, two BF16 pairs, as the words of pair_inputs of which
/// this lane has the first or last two; codes are paired with those of another lane.
template <Format kFormat>
__device__ __forceinline__ uint2 pair_columns(uint32_t low, uint32_t high) {
  if constexpr (kFormat == Format::bf16) return make_uint2(low, high);
  const bool odd = threadIdx.x % 2 != 0;
  const uint32_t other = __shfl_xor_sync(kAllLanes, odd ? low : high, 1);
  const uint32_t first = odd ? other : low;
  const uint32_t second = odd ? high : other;
  return make_uint2(scale_inputs<kFormat>(__byte_perm(first, second, 0x5410)),
                    scale_inputs<kFormat>(__byte_perm(first, second, 0x7632)));
}

/// The addresses of the inputs of a lane's tokens; row_of(token) is that of one token.
template <int kTiles>
struct InputRows {
  const uint16_t* x[kTiles];

  template <typename RowOf>
  __device__ __forceinline__ explicit InputRows(const RowOf& row_of) {
#pragma unroll
    for (int j = 0; j < kTiles; ++j)
      x[j] = row_of(kTokenTile * j + static_cast<int>(threadIdx.x % 32) / 4);
  }
};
/// Stores the fragments of a slice; one warp does it, and a barrier of the warps that read them
/// must follow.
template <Format kFormat, int kTiles>
__device__ __forceinline__ void store_fragments(const InputRows<kTiles>& rows, int slice,
                                                uint4* to) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int unit = 0; unit < unit_count(kFormat); ++unit)
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const int column = slice * slice_columns(kFormat) + unit_column<kFormat>(unit);
      to[(unit * kTiles + j) * 32 + lane] =
          pair_inputs<kFormat>(*reinterpret_cast<const uint4*>(rows.x[j] + column));
    }
}

/// Returns the place [unit][t] of the `eight`-th 8 columns of a slice, as unit_column() has it.
template <Format kFormat>
__device__ __forceinline__ int fragment_of(int eight) {
  if constexpr (kFormat == Format::nvfp4) return (eight / 16 * 4 + eight % 4) * 4 + eight % 16 / 4;
  if constexpr (kFormat == Format::fp8) return (eight / 8 * 2 + eight % 2) * 4 + eight % 8 / 2;
  return eight;
}

/// Makes A fragments of 8 columns of one row, paired as pair_inputs pairs x.
template <Format kFormat>
__device__ __forceinline__ void widen_resident(const uint4* raw, int unit, uint32_t scale,
                                               uint32_t (&out)[4]) {
  if constexpr (kFormat == Format::nvfp4) {
    widen_e2m1(word_of(raw[unit / 4], unit % 4), scale, out);
  } else if constexpr (kFormat == Format::fp8) {
    const E4m3Pairs low = e4m3_pairs(word_of(raw[unit / 2], 2 * (unit % 2)));
    const E4m3Pairs high = e4m3_pairs(word_of(raw[unit / 2], 2 * (unit % 2) + 1));
    out[0] = low.of[0], out[1] = low.of[1], out[2] = high.of[0], out[3] = high.of[1];
  } else {
    const uint4& v = raw[unit];
    out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
  }
}

/// Computes acc[j] = rows x tokens of n-tile j over one slice. x has the slice's fragments, with
/// kRow those of RowNorm. kBlocks: FP8 has a factor for each 128 columns. Adjacent products go to
/// different sums, because one would wait for the other.
template <Format kFormat, bool kBlocks, bool kRow = false, int kLoads, int kTiles>
__device__ __forceinline__ void multiply_resident(const RawSlice<kLoads>& raw, const uint4* x,
                                                  const float (&factors)[2],
                                                  float (&acc)[kTiles][4]) {
  uint32_t low_scale[2] = {};
  uint32_t high_scale[2] = {};
  float odd[kTiles][4];
  float first[kTiles][4];
  constexpr int kGroup = kRow ? 4 : 32;  // lanes with fragments of their own
  x += threadIdx.x % kGroup;
#pragma unroll
  for (int j = 0; j < kTiles; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) acc[j][i] = odd[j][i] = 0.0F;
#pragma unroll
  for (int unit = 0; unit < unit_count(kFormat); ++unit) {
    if constexpr (kFormat == Format::nvfp4) {
      if (unit % 4 == 0) {
        group_multipliers(raw.low_scales[unit / 4], low_scale);
        group_multipliers(raw.high_scales[unit / 4], high_scale);
      }
    }
    if (kBlocks && unit == 4) {
#pragma unroll
      for (int j = 0; j < kTiles; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          first[j][i] = acc[j][i] + odd[j][i];
          acc[j][i] = odd[j][i] = 0.0F;
        }
    }
    uint32_t low[4];
    uint32_t high[4];
    widen_resident<kFormat>(raw.low, unit, low_scale[unit % 4 / 2], low);
    widen_resident<kFormat>(raw.high, unit, high_scale[unit % 4 / 2], high);
    uint4 b[kTiles];
#pragma unroll
    for (int j = 0; j < kTiles; ++j) b[j] = x[(unit * kTiles + j) * kGroup];
#pragma unroll
    for (int j = 0; j < kTiles; ++j)
      mma_16x8x16(acc[j], low[0], high[0], low[1], high[1], b[j].x, b[j].y);
#pragma unroll
    for (int j = 0; j < kTiles; ++j)
      mma_16x8x16(odd[j], low[2], high[2], low[3], high[3], b[j].z, b[j].w);
  }
#pragma unroll
  for (int j = 0; j < kTiles; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      acc[j][i] += odd[j][i];
      if (kBlocks) acc[j][i] = fmaf(factors[1], acc[j][i], __fmul_rn(factors[0], first[j][i]));
    }
}

/// A lane's four sums of a tile lie together: float o of a tile is of row tile_row(o), token
/// tile_token(o).
using TileSums = float4[32];

__device__ __forceinline__ int tile_token(int o) { return 2 * (o >> 2 & 3) + (o & 1); }
/// Returns which row of 16 is lane group g's low (0) or high (1) row; adjacent lanes store adjacent
/// rows.
__device__ __forceinline__ int lane_row(int g, int high) {
  return 4 * (g >> 1) + (g & 1) + 2 * high;
}
/// Returns the place of the sum of a row of 16 for token 0.
__device__ __forceinline__ int tile_place(int row) {
  return (row >> 2) << 5 | (row & 1) << 4 | (row & 2);
}
__device__ __forceinline__ int tile_row(int o) { return lane_row(o >> 4, o >> 1 & 1); }

template <int kTiles>
__device__ __forceinline__ void store_sums(TileSums* to, const float (&acc)[kTiles][4]) {
#pragma unroll
  for (int j = 0; j < kTiles; ++j)
    to[j][threadIdx.x % 32] = make_float4(acc[j][0], acc[j][1], acc[j][2], acc[j][3]);
}
/// Adds up float o of a tile over `parts` slices whose sums lie `stride` tiles apart.
__device__ __forceinline__ float add_parts(const TileSums* from, int parts, int stride, int o) {
  float total = 0.0F;
#pragma unroll 8
  for (int p = 0; p < parts; ++p) total += reinterpret_cast<const float*>(from[p * stride])[o];
  return total;
}

/// Returns four columns of a normed row as two BF16 pairs: bf16(weight * (h * scale)), the bits of
/// norm_row.
__device__ __forceinline__ uint2 normed_pairs(const float4& h, const float4& weight, float scale) {
  return make_uint2(to_bf16_pair(__fmul_rn(weight.x, __fmul_rn(h.x, scale)),
                                 __fmul_rn(weight.y, __fmul_rn(h.y, scale))),
                    to_bf16_pair(__fmul_rn(weight.z, __fmul_rn(h.z, scale)),
                                 __fmul_rn(weight.w, __fmul_rn(h.w, scale))));
}

/// x = bf16(norm(h)) of a single row, the bits of norm_row, by a block whose warps hold all slices
/// between them: each warp makes the fragments of its own slices, `part` of kParts `stride` slices
/// apart, and reads no others. A row's fragments are the same for all groups of lanes: [unit][4].
template <Format kFormat, int kParts>
class RowNorm {
 public:
  static constexpr int kColumns = slice_columns(kFormat);
  static constexpr int kGroups = kColumns / 128;  // groups of columns that are squared together
  static constexpr int kWords = unit_count(kFormat) * 4;  // uint4 words of a slice

  __device__ __forceinline__ RowNorm(const NormInput& in, int slice, int stride, int slices)
      : in_(in), slice_(slice), stride_(stride), slices_(slices) {
#pragma unroll
    for (int i = 0; i < kParts * kGroups; ++i) weight_[i] = load(in.weight, i);
  }
  /// Call it after the wait for h; it has one barrier of the block. `squares` has room for
  /// kResidentColumnsMax / 128 sums.
  __device__ __forceinline__ void run(float* squares, uint4* to, int part_stride = kWords) const {
    const int lane = threadIdx.x % 32;
    float4 h[kParts * kGroups];
#pragma unroll
    for (int i = 0; i < kParts * kGroups; ++i) h[i] = load(in_.h, i);
#pragma unroll
    for (int i = 0; i < kParts * kGroups; ++i) {
      const float sum = warp_sum(sum_of_squares(h[i]));
      const int group = slice_of(i) * kGroups + i % kGroups;
      if (lane == 0 && group < kResidentColumnsMax / 128) squares[group] = sum;
    }
    __syncthreads();
    float total = 0.0F;
#pragma unroll 4
    for (int group = 0; group < (in_.columns + 127) / 128; ++group) total += squares[group];
    const float scale = rsqrtf(total / static_cast<float>(in_.columns) + in_.eps);
#pragma unroll
    for (int i = 0; i < kParts * kGroups; ++i) {
      const uint2 pairs = normed_pairs(h[i], weight_[i], scale);
      auto* at =
          reinterpret_cast<uint2*>(to + i / kGroups * part_stride + word_of_lane(i % kGroups));
      at[lane % 2] = pair_columns<kFormat>(pairs.x, pairs.y);
    }
    __syncwarp();
  }

 private:
  __device__ __forceinline__ int slice_of(int i) const { return slice_ + i / kGroups * stride_; }
  __device__ __forceinline__ float4 load(const float* from, int i) const {
    const int column = slice_of(i) * kColumns + i % kGroups * 128 + 4 * (threadIdx.x % 32);
    if (slice_of(i) >= slices_ || column >= in_.columns) return make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    return *reinterpret_cast<const float4*>(from + column);
  }
  /// Returns the place of the 8 columns of which this lane has half: the unit and t of
  /// unit_column().
  __device__ __forceinline__ static int word_of_lane(int group) {
    return fragment_of<kFormat>(16 * group + static_cast<int>(threadIdx.x % 32) / 2);
  }

  const NormInput& in_;
  int slice_, stride_, slices_;
  float4 weight_[kParts * kGroups];
};

}  // namespace nibble::cuda
