// This file runs the plans of linear_select.h, and has the kernels for rows of more than 16 slices,
// whose inputs no block has room for. Work is cut into tiles of 16 rows of W. split: a block of 8
// or 16 warps takes a tile, warp w adds up slices w, w + 8, ... of the columns, and the warps' sums
// are added in their order; it has many loads in flight for one short product. chain: a warp takes
// a tile and makes the same sums alone, while it loads the next slice; it is for much work. Both
// give the same bits. Bound: the bytes of W.
#include "backend/cuda/ops/linear/linear_resident.h"
#include "backend/cuda/ops/linear/linear_stream.h"
#include "backend/cuda/ops/linear/resident.cuh"
#include "backend/cuda/ops/linear/warp_matrix.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/runtime/launch_log.h"

namespace nibble::cuda {
namespace {

constexpr int kWarps = kChainWarps;

struct Plan {
  LinearSegment segments[kLinearsMax];
  int32_t count = 0;
  int32_t tiles = 0;
  int32_t warps_per_tile = 0;
  int32_t rows = 0;
  const uint16_t* x = nullptr;
  int64_t x_stride = 0;
  const int32_t* gather = nullptr;
};

__device__ __forceinline__ const LinearSegment& segment_of(const Plan& plan, int tile) {
  int s = 0;
  while (s + 1 < plan.count && tile >= plan.segments[s + 1].tile_begin) ++s;
  return plan.segments[s];
}

template <Format kFormat>
__device__ __forceinline__ void load_tile(const LinearSegment& segment, int tile, int slice,
                                          RawSlice<load_count(kFormat)>& raw) {
  const DeviceLinear& w = segment.out.weight;
  const int first = (tile - segment.tile_begin) * kRowTile + static_cast<int>(threadIdx.x % 32) / 4;
  load_slice<kFormat>(row_of<kFormat>(w, min(first, w.rows - 1)),
                      row_of<kFormat>(w, min(first + 8, w.rows - 1)), slice, raw);
}

template <Format kFormat, int kTiles>
__device__ __forceinline__ void multiply_tile(const LinearSegment& segment, int tile, int slice,
                                              const RawSlice<load_count(kFormat)>& raw,
                                              const uint16_t* const (&x)[kTiles],
                                              float (&acc)[kTiles][4]) {
  const DeviceLinear& w = segment.out.weight;
  const uint16_t* at[kTiles];
#pragma unroll
  for (int j = 0; j < kTiles; ++j) at[j] = x[j] + slice * slice_columns(kFormat);
  float factors[2] = {1.0F, 1.0F};
  if constexpr (kFormat == Format::fp8)
    block_factors(w, w.factors, (tile - segment.tile_begin) * kRowTile, slice, factors);
  multiply_slice<kFormat>(raw, at, factors, acc);
}

__device__ __forceinline__ void put(const LinearOutput& out, int token, int row, float value) {
  float* y = out.y + token * out.y_stride + row;
  *y = out.finish == Finish::add ? __fadd_rn(*y, value) : value;
}

/// Finds the rows of x of the tokens that a lane multiplies.
template <int kTiles>
__device__ __forceinline__ void find_inputs(const Plan& plan, int row_begin,
                                            const uint16_t* (&x)[kTiles]) {
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    const int row = min(row_begin + 8 * j + static_cast<int>(threadIdx.x % 32) / 4, plan.rows - 1);
    x[j] = plan.x + (plan.gather == nullptr ? row : plan.gather[row]) * plan.x_stride;
  }
}

template <Format kFormat, int kTiles, int kBlockWarps>
__global__ void __launch_bounds__(kBlockWarps * 32)
    split_kernel(const __grid_constant__ Plan plan) {
  constexpr int kTokens = 8 * kTiles;
  __shared__ float sums[kBlockWarps][kTokens][kRowTile + 1];
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int tiles_per_block = kBlockWarps / plan.warps_per_tile;
  const int local_tile = warp / plan.warps_per_tile;
  const int first_slice = warp % plan.warps_per_tile;
  const int row_begin = blockIdx.y * kTokens;

  int tile = blockIdx.x * tiles_per_block + local_tile;
  RawSlice<load_count(kFormat)> raw;
  const LinearSegment* segment = &segment_of(plan, tile);
  const auto works = [&] {
    return local_tile < tiles_per_block && tile < plan.tiles &&
           first_slice < segment->out.weight.cols / slice_columns(kFormat);
  };
  if (works()) load_tile<kFormat>(*segment, tile, first_slice, raw);
  wait_for_inputs();
  const uint16_t* x[kTiles];
  find_inputs(plan, row_begin, x);
  const int tokens = min(kTokens, plan.rows - row_begin);
  for (int base = blockIdx.x * tiles_per_block; base < plan.tiles;
       base += gridDim.x * tiles_per_block) {
    float acc[kTiles][4] = {};
    if (works()) {
      multiply_tile<kFormat, kTiles>(*segment, tile, first_slice, raw, x, acc);
      for (int slice = first_slice + plan.warps_per_tile;
           slice < segment->out.weight.cols / slice_columns(kFormat);
           slice += plan.warps_per_tile) {
        load_tile<kFormat>(*segment, tile, slice, raw);
        multiply_tile<kFormat, kTiles>(*segment, tile, slice, raw, x, acc);
      }
    }
    tile += gridDim.x * tiles_per_block;
    segment = &segment_of(plan, tile);
    if (works()) load_tile<kFormat>(*segment, tile, first_slice, raw);
#pragma unroll
    for (int j = 0; j < kTiles; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sums[warp][8 * j + 2 * (lane % 4) + i % 2][lane / 4 + i / 2 * 8] = acc[j][i];
    __syncthreads();
    for (int o = threadIdx.x; o < tiles_per_block * tokens * kRowTile; o += kBlockWarps * 32) {
      const int t = o / (tokens * kRowTile);
      const int token = o / kRowTile % tokens;
      if (base + t >= plan.tiles) continue;
      const LinearSegment& of = segment_of(plan, base + t);
      const int row = (base + t - of.tile_begin) * kRowTile + o % kRowTile;
      if (row >= of.out.weight.rows) continue;
      float total = 0.0F;
      for (int w = 0; w < plan.warps_per_tile; ++w)
        total += sums[t * plan.warps_per_tile + w][token][o % kRowTile];
      put(of.out, row_begin + token, row, __fmul_rn(total, plain_factor(of.out.weight, 0, row)));
    }
    __syncthreads();
  }
}

/// Lane (g, t) has rows g and g + 8 of tokens 2t and 2t + 1.
template <int kTiles>
__device__ __forceinline__ void write_tile(const Plan& plan, const LinearSegment& segment, int tile,
                                           int row_begin, const float (&total)[kTiles][4]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = (tile - segment.tile_begin) * kRowTile + lane / 4 + 8 * half;
    if (row >= segment.out.weight.rows) continue;
    const float factor = plain_factor(segment.out.weight, 0, row);
#pragma unroll
    for (int j = 0; j < kTiles; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int token = row_begin + 8 * j + 2 * (lane % 4) + i;
        if (token < plan.rows)
          put(segment.out, token, row, __fmul_rn(total[j][2 * half + i], factor));
      }
  }
}

template <Format kFormat, int kTiles>
__global__ void __launch_bounds__(kWarps * 32, kTiles == 1 && kFormat == Format::nvfp4 ? 3 : 1)
    chain_kernel(const __grid_constant__ Plan plan) {
  const int row_begin = blockIdx.y * 8 * kTiles;
  int tile = blockIdx.x * kWarps + threadIdx.x / 32;
  int slice = 0;
  const LinearSegment* segment = &segment_of(plan, tile);
  RawSlice<load_count(kFormat)> raw;
  if (tile < plan.tiles) load_tile<kFormat>(*segment, tile, 0, raw);
  wait_for_inputs();
  const uint16_t* x[kTiles];
  find_inputs(plan, row_begin, x);
  float total[kTiles][4] = {};
  float part[kTiles][4] = {};
  while (tile < plan.tiles) {
    const int slices = segment->out.weight.cols / slice_columns(kFormat);
    const int parts = min(slices, plan.warps_per_tile);
    int following = next_slice(slice, slices, parts);
    const bool part_ends = ends_part(slice, slices, parts);
    const bool tile_ends = part_ends && (following >= slices || following == parts);
    int next_tile = tile;
    const LinearSegment* next_segment = segment;
    if (tile_ends) {
      following = 0;
      next_tile = tile + gridDim.x * kWarps;
      next_segment = &segment_of(plan, next_tile);
    }
    RawSlice<load_count(kFormat)> next;
    if (next_tile < plan.tiles) load_tile<kFormat>(*next_segment, next_tile, following, next);
    multiply_tile<kFormat, kTiles>(*segment, tile, slice, raw, x, part);
    if (part_ends) {
#pragma unroll
      for (int j = 0; j < kTiles; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          total[j][i] += part[j][i];
          part[j][i] = 0.0F;
        }
    }
    if (tile_ends) {
      write_tile(plan, *segment, tile, row_begin, total);
#pragma unroll
      for (int j = 0; j < kTiles; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) total[j][i] = 0.0F;
    }
    raw = next;
    tile = next_tile;
    slice = following;
    segment = next_segment;
  }
}

unsigned row_blocks(const Plan& plan, int tiles) {
  return static_cast<unsigned>(ceil_div(plan.rows, kTokenTile * tiles));
}

/// Launches a kernel whose blocks take `tiles_per_block` of the plan's tiles at a time.
template <int kTiles, int kBlockWarps>
void launch_plan(void (*kernel)(Plan), int resident, int tiles_per_block, const Plan& plan,
                 const Launcher& launcher) {
  const int groups = ceil_div(plan.tiles, tiles_per_block);
  const int blocks = min(groups, resident * launcher.card.multiprocessors);
  launch(kernel, launcher, dim3(static_cast<unsigned>(blocks), row_blocks(plan, kTiles)),
         kBlockWarps * 32, 0, plan);
}

template <Format kFormat, int kTiles, int kBlockWarps>
void launch_split(const Plan& plan, const Launcher& launcher) {
  const auto kernel = split_kernel<kFormat, kTiles, kBlockWarps>;
  const int resident = launcher.device->resident_blocks(kernel, kBlockWarps * 32);
  launch_plan<kTiles, kBlockWarps>(kernel, resident, kBlockWarps / plan.warps_per_tile, plan,
                                   launcher);
}

template <Format kFormat, int kTiles>
void launch_linear(const Plan& plan, const LinearPlan& chosen, const Launcher& launcher) {
  if (chosen.kernel == LinearKernel::chain) {
    const auto kernel = chain_kernel<kFormat, kTiles>;
    const int resident = launcher.device->resident_blocks(kernel, kWarps * 32);
    return launch_plan<kTiles, kWarps>(kernel, resident, kWarps, plan, launcher);
  }
  if (chosen.warps == kWarps) return launch_split<kFormat, kTiles, kWarps>(plan, launcher);
  if constexpr (kTiles <= 4) launch_split<kFormat, kTiles, kSplitWarpsMax>(plan, launcher);
}

void linear_long(const LinearArgs& args, const LinearPlan& chosen, const Launcher& launcher) {
  Plan plan;
  plan.rows = args.rows;
  plan.x = args.x;
  plan.x_stride = args.x_stride;
  plan.gather = args.gather;
  plan.warps_per_tile = chosen.warps_per_tile;
  for (int i = 0; i < args.count; ++i) {
    plan.segments[plan.count++] = {.out = args.outputs[i], .tile_begin = plan.tiles};
    plan.tiles += ceil_div(args.outputs[i].weight.rows, kRowTile);
  }
  with_value<Format::bf16, Format::fp8, Format::nvfp4>(chosen.format, [&]<Format kFormat>() {
    with_value<8, 16, 32, 64>(chosen.tokens, [&]<int kTokens>() {
      launch_linear<kFormat, kTokens / kTokenTile>(plan, chosen, launcher);
    });
  });
}

/// Returns the outputs of one launch.
LinearArgs outputs_of(const LinearArgs& args, const LinearPlan& plan) {
  LinearArgs some = args;
  some.count = 0;
  for (int i = 0; i < args.count; ++i)
    if ((plan.outputs >> i & 1) != 0) some.outputs[some.count++] = args.outputs[i];
  return some;
}

}  // namespace

void linear(const LinearArgs& args, const Launcher& launcher) {
  for (const LinearPlans plans = select_linear(args, launcher.card);
       const LinearPlan& plan : plans.all()) {
    const LinearArgs some = outputs_of(args, plan);
    log_launch(launcher, plan, {.weights = plan.weight_bytes});
    switch (plan.kernel) {
      case LinearKernel::row:
        linear_row(some, plan, launcher);
        break;
      case LinearKernel::resident:
        linear_resident(some, plan, launcher);
        break;
      case LinearKernel::tiles:
        linear_tiles(some, plan, launcher);
        break;
      case LinearKernel::norm:
        linear_norm(some, plan, launcher);
        break;
      case LinearKernel::split:
      case LinearKernel::chain:
        linear_long(some, plan, launcher);
        break;
      case LinearKernel::stream:
        linear_stream(some, plan, launcher);
        break;
    }
  }
}

}  // namespace nibble::cuda
