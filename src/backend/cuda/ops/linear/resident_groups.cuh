// The parts that linear_resident.cu, linear_row.cu and linear_tiles.cu share: the matrices of a
// launch as groups of one format and one number of columns, their tiles of 16 rows, which of them a
// block takes, and how an output ends.
#pragma once

#include <span>

#include "backend/cuda/ops/linear/convolve_output.cuh"
#include "backend/cuda/ops/linear/resident.cuh"
#include "base/check.h"

namespace nibble::cuda {

struct ResidentGroup {
  LinearSegment segments[kLinearsMax];
  int32_t count = 0;
  int32_t tiles = 0;
  int32_t slices = 0;
  int32_t per_step = 1;    // tiles a block multiplies at once
  int32_t steps = 0;       // steps of all blocks that have one group of tokens
  int32_t blocks = 0;      // blocks for one group of tokens
  int32_t row_groups = 1;  // groups of tokens
};

__device__ __forceinline__ const LinearSegment& segment_of(const ResidentGroup& group, int tile) {
  return segment_of(group.segments, group.count, tile);
}
/// A block's steps are adjacent: those from its first to the next block's.
__device__ __forceinline__ int first_step(const ResidentGroup& group, int block) {
  const int each = group.steps / group.blocks;
  return block * each + min(block, group.steps - each * group.blocks);
}

template <Format kFormat>
__device__ __forceinline__ void load_slice_of(const ResidentGroup& group, int tile, int slice,
                                              RawSlice<load_count(kFormat)>& raw) {
  const LinearSegment& segment = segment_of(group, tile);
  const DeviceLinear& w = segment.out.weight;
  const int low =
      (tile - segment.tile_begin) * kRowTile + lane_row(static_cast<int>(threadIdx.x % 32) / 4, 0);
  load_slice<kFormat>(row_of<kFormat>(w, min(low, w.rows - 1)),
                      row_of<kFormat>(w, min(low + 2, w.rows - 1)), slice, raw);
}
/// Reads the factors of a slice of FP8 weights with a factor for each 128 columns.
__device__ __forceinline__ void block_factors(const ResidentGroup& group, int tile, int slice,
                                              float (&factors)[2]) {
  const LinearSegment& segment = segment_of(group, tile);
  const DeviceLinear& w = segment.out.weight;
  block_factors(w, w.factors, (tile - segment.tile_begin) * kRowTile, slice, factors);
}

/// Spreads a group over at most blocks_max blocks for each group of tokens.
inline void spread(ResidentGroup& group, int per_step, int blocks_max) {
  group.per_step = per_step;
  group.steps = ceil_div(group.tiles, per_step);
  group.blocks = blocks_max < 1 ? 1 : blocks_max < group.steps ? blocks_max : group.steps;
}

/// A launch has the outputs of the first one's format, and after them those in BF16, if any.
struct ResidentPlan {
  ResidentGroup first, second;
  const uint16_t* x = nullptr;
  int64_t x_stride = 0;
  const int32_t* gather = nullptr;
  NormInput norm;
  ConvolveOutput convolve;
  int32_t rows = 0;
};
inline ResidentPlan resident_plan(const LinearArgs& args) {
  ResidentPlan plan{.x = args.x,
                    .x_stride = args.x_stride,
                    .gather = args.gather,
                    .norm = args.norm,
                    .convolve = args.convolve,
                    .rows = args.rows};
  for (int i = 0; i < args.count; ++i) {
    const LinearOutput& out = args.outputs[i];
    const DeviceLinear& w = out.weight;
    ResidentGroup& group = w.format == args.outputs[0].weight.format ? plan.first : plan.second;
    group.segments[group.count++] = {.out = out, .tile_begin = group.tiles};
    group.tiles += ceil_div(w.rows, kRowTile);
    group.slices = w.cols / slice_columns(w.format);
  }
  CHECK(plan.second.count == 0 || plan.first.slices <= kResidentWarps, "two formats with ",
        plan.first.slices, " slices");
  return plan;
}
/// The layout of factors by which a kernel is chosen: block128 if any output has that.
inline FactorLayout layout_of(const LinearArgs& args) {
  for (const LinearOutput& out : std::span(args.outputs, static_cast<size_t>(args.count)))
    if (out.weight.layout == FactorLayout::block128) return FactorLayout::block128;
  return FactorLayout::scalar;
}

/// The values that a thread needs to finish one output, loaded while the product is computed.
struct ResidentAhead {
  float* y = nullptr;  // null: nothing to write
  float factor = 1.0F;
  float old = 0.0F;
  Finish finish = Finish::store;
};
template <bool kConvolves>
__device__ __forceinline__ ResidentAhead look_ahead(const LinearOutput& out, int row, int token,
                                                    const ConvolveOutput& convolution,
                                                    ConvolveAhead& convolve) {
  ResidentAhead to;
  if (row >= out.weight.rows) return to;
  to.finish = out.finish;
  to.factor = row_factor(out.weight, row);
  float* y = out.y + token * out.y_stride + row;
  if (out.finish == Finish::add) to.old = *y;
  if (kConvolves && out.finish == Finish::convolve &&
      !look_ahead(convolution, row, token, convolve))
    return to;
  to.y = y;
  return to;
}
/// Writes an output; `total` is the sum over its slices.
template <bool kConvolves>
__device__ __forceinline__ void write_output(const ResidentAhead& to, float total,
                                             const ConvolveOutput& convolution,
                                             const ConvolveAhead& of) {
  const float value = __fmul_rn(total, to.factor);
  if (to.finish == Finish::store) {
    *to.y = value;
  } else if (to.finish == Finish::add) {
    *to.y = __fadd_rn(to.old, value);
  } else if (kConvolves) {
    *to.y = convolve(convolution, of, value);
  }
}

}  // namespace nibble::cuda
