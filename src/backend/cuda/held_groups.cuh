// What linear_held.cu and linear_row.cu share: the matrices of a launch as groups of one format and
// one number of columns, their tiles of 16 rows, and which of them a block takes.
#pragma once

#include "backend/cuda/held.cuh"

namespace nibble::cuda {

struct HeldSegment {
  LinearOutput out;
  int32_t tile_begin = 0;
};

struct HeldGroup {
  HeldSegment segments[kLinearsMax];
  int32_t count = 0;
  int32_t tiles = 0;
  int32_t slices = 0;
  int32_t per_step = 1;    // tiles a block multiplies at once
  int32_t steps = 0;       // of all blocks of one group of tokens
  int32_t blocks = 0;      // of one group of tokens
  int32_t row_groups = 1;  // of tokens
};

__device__ __forceinline__ const HeldSegment& segment_of(const HeldGroup& group, int tile) {
  int s = 0;
#pragma unroll 1
  while (s + 1 < group.count && tile >= group.segments[s + 1].tile_begin) ++s;
  return group.segments[s];
}
/// A block's steps are neighbours: those from its first to the next block's.
__device__ __forceinline__ int first_step(const HeldGroup& group, int block) {
  const int each = group.steps / group.blocks;
  return block * each + min(block, group.steps - each * group.blocks);
}

template <Format kFormat>
__device__ __forceinline__ void load_slice_of(const HeldGroup& group, int tile, int slice,
                                              RawSlice<load_count(kFormat)>& raw) {
  const HeldSegment& segment = segment_of(group, tile);
  const DeviceLinear& w = segment.out.weight;
  const int low =
      (tile - segment.tile_begin) * kRowTile + lane_row(static_cast<int>(threadIdx.x % 32) / 4, 0);
  load_slice<kFormat>(row_of<kFormat>(w, min(low, w.rows - 1)),
                      row_of<kFormat>(w, min(low + 2, w.rows - 1)), slice, raw);
}
/// Of FP8 with a factor for each 128 columns: those of a slice.
__device__ __forceinline__ void block_factors(const HeldGroup& group, int tile, int slice,
                                              float (&factors)[2]) {
  const HeldSegment& segment = segment_of(group, tile);
  const DeviceLinear& w = segment.out.weight;
  if (w.layout != FactorLayout::block128) return;
  const float* f =
      w.factors + (tile - segment.tile_begin) * kRowTile / 128 * (w.cols / 128) + 2 * slice;
  factors[0] = f[0];
  factors[1] = f[1];
}

inline void add(HeldGroup& group, const LinearOutput& out) {
  group.segments[group.count++] = {.out = out, .tile_begin = group.tiles};
  group.tiles += ceil_div(out.weight.rows, kRowTile);
  group.slices = out.weight.cols / slice_columns(out.weight.format);
}
/// Over at most blocks_max blocks for each group of tokens.
inline void spread(HeldGroup& group, int per_step, int blocks_max) {
  group.per_step = per_step;
  group.steps = ceil_div(group.tiles, per_step);
  group.blocks = blocks_max < 1 ? 1 : blocks_max < group.steps ? blocks_max : group.steps;
}

}  // namespace nibble::cuda
