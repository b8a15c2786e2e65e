// The parts that experts_resident.cu and experts_row.cu share: the plan of a launch and the
// addresses of an expert's tiles.
#pragma once

#include "backend/cuda/ops/experts/experts_resident.h"
#include "backend/cuda/ops/linear/resident.cuh"
#include "backend/cuda/runtime/launch.cuh"

namespace nibble::cuda {

struct ExpertPlan {
  ExpertArgs args;
  int32_t slices = 0;
  int32_t per_step = 0;                        // a row alone: tiles a block multiplies at once
  int32_t routed_tiles = 0, routed_steps = 0;  // tiles and steps of one item; 0: no experts
  int32_t shared_tiles = 0, shared_steps = 0;
};

inline constexpr int kExpertThreads = kResidentWarps * 32;

__device__ __forceinline__ const DeviceLinear& low_of(const ExpertArgs& a, int expert) {
  return expert < 0 ? a.shared_low : a.routed_low;
}
__device__ __forceinline__ const DeviceLinear& high_of(const ExpertArgs& a, int expert) {
  return expert < 0 ? a.shared_high : a.routed_high;
}

__device__ __forceinline__ float factor_of(const DeviceLinear& w, int expert, int row) {
  const float* f = w.factors + max(expert, 0) * w.factor_stride;
  return f[w.layout == FactorLayout::row ? row : 0] * resident_unscale(w.format);
}

/// The addresses of rows g of a tile; tiles follow each other at a fixed distance.
struct TilePointers {
  const uint8_t* values;
  const uint8_t* scales;
  int64_t to_high_values, to_high_scales;  // distance from the low row to the high one
};

template <ExpertPart kPart, Format kFormat>
__device__ __forceinline__ TilePointers tile_at(const ExpertArgs& a, int expert, int tile, int g) {
  const DeviceLinear& low = low_of(a, expert);
  const DeviceLinear& high = high_of(a, expert);
  const int row = kPart == ExpertPart::gate_up ? 8 * tile + g : kRowTile * tile + lane_row(g, 0);
  const int64_t base = static_cast<int64_t>(max(expert, 0)) * low.rows + row;
  const RowPointers first = row_of<kFormat>(low, base);
  const RowPointers second = row_of<kFormat>(high, kPart == ExpertPart::gate_up ? base : base + 2);
  return {.values = first.values,
          .scales = first.scales,
          .to_high_values = second.values - first.values,
          .to_high_scales = second.scales - first.scales};
}

template <Format kFormat>
__device__ __forceinline__ void load_tile(const TilePointers& at, int slice,
                                          RawSlice<load_count(kFormat)>& raw) {
  load_slice<kFormat>(
      {.values = at.values, .scales = at.scales},
      {.values = at.values + at.to_high_values, .scales = at.scales + at.to_high_scales}, slice,
      raw);
}

inline ExpertPlan plan_of(ExpertPart part, const ExpertArgs& args) {
  const int rows = part == ExpertPart::gate_up ? 8 : kRowTile;
  const DeviceLinear& w = args.routed_low.present() ? args.routed_low : args.shared_low;
  ExpertPlan plan{.args = args, .slices = w.cols / slice_columns(w.format)};
  plan.per_step = kResidentWarps / plan.slices;
  if (args.routed_low.present()) plan.routed_tiles = ceil_div(args.routed_low.rows, rows);
  if (args.shared_low.present()) plan.shared_tiles = ceil_div(args.shared_low.rows, rows);
  plan.routed_steps = ceil_div(plan.routed_tiles, plan.per_step);
  plan.shared_steps = ceil_div(plan.shared_tiles, plan.per_step);
  return plan;
}

}  // namespace nibble::cuda
