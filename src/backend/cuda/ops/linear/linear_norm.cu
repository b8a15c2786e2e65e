// Products of several rows with the norm before them, for few tiles: what a router is. A block
// takes one tile of 16 rows of W for 8 or 16 tokens and norms them itself, a warp the columns of
// its slice; blocks of the first tile leave the normed rows for other readers. The norm is that of
// norm.cuh, the products and sums are those of linear_resident.cu, bit for bit. Bound: latency;
// every block reads its tokens whole.
#include "backend/cuda/ops/linear/linear_resident.h"
#include "backend/cuda/ops/linear/resident_groups.cuh"
#include "backend/cuda/runtime/launch.cuh"

namespace nibble::cuda {
namespace {

constexpr Format kFormat = Format::bf16;
constexpr int kSliceColumns = slice_columns(kFormat);
constexpr int kWarps = kNormWarps;  // one slice each
constexpr int kThreads = kWarps * 32;
static_assert(kSliceColumns == 4 * 32,
              "a lane has four columns, and a slice is one group of squares");

template <int kTiles>
struct NormShared {
  uint4 x[kWarps][unit_count(kFormat)][kTiles][32];
  TileSums sums[kWarps][kTiles];
  float squares[kWarps][kTiles * kTokenTile];
};

/// The factor by which lanes t, t + kTokens, ... multiply token t's numbers, from all warps'
/// columns; one barrier.
template <int kTokens>
__device__ __forceinline__ float scale_of_lane(const NormInput& norm, const float4 (&h)[kTokens],
                                               float (&squares)[kWarps][kTokens]) {
  const auto warp = static_cast<int>(threadIdx.x) / 32;
  const auto lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    const float sum = warp_sum(sum_of_squares(h[t]));
    if (lane == 0) squares[warp][t] = sum;
  }
  __syncthreads();
  float total = 0.0F;
#pragma unroll 16
  for (int slice = 0; slice < (norm.columns + kSliceColumns - 1) / kSliceColumns; ++slice)
    total += squares[slice][lane % kTokens];
  return rsqrtf(total / static_cast<float>(norm.columns) + norm.eps);
}

/// Four columns of a token as the two words of BF16 that they are in the product's fragments
/// [unit][token of 8][t], and to `x`, unless null, as they lie in an input.
__device__ __forceinline__ void put_columns(const float4& h, const float4& weight, float scale,
                                            uint4* fragments, uint16_t* x) {
  const uint2 pairs = normed_pairs(h, weight, scale);
  const uint2 placed = pair_columns<Format::nvfp4>(pairs.x, pairs.y);
  const auto lane = static_cast<int>(threadIdx.x) % 32;
  reinterpret_cast<uint2*>(fragments)[lane % 2] = pair_columns<kFormat>(pairs.x, pairs.y);
  if (x != nullptr) *reinterpret_cast<uint2*>(x) = placed;
}

template <int kTiles>
__global__ void __launch_bounds__(kThreads, 1)
    norm_kernel(const __grid_constant__ ResidentPlan plan) {
  touch(plan);
  extern __shared__ __align__(128) uint8_t memory[];
  auto& shared = *reinterpret_cast<NormShared<kTiles>*>(memory);
  constexpr int kTokens = kTiles * kTokenTile;
  const ResidentGroup& group = plan.first;
  const NormInput& norm = plan.norm;
  const auto warp = static_cast<int>(threadIdx.x) / 32;
  const auto lane = static_cast<int>(threadIdx.x) % 32;
  const int tile = static_cast<int>(blockIdx.x) / group.row_groups;
  const int row_begin = static_cast<int>(blockIdx.x) % group.row_groups * kTokens;
  const int tokens = min(kTokens, plan.rows - row_begin);
  const bool works = warp < group.slices;
  RawSlice<load_count(kFormat)> raw;
  if (works) load_slice_of<kFormat>(group, tile, warp, raw);
  const int column = warp * kSliceColumns + 4 * lane;
  const auto load = [&](const float* row) {
    return column < norm.columns ? *reinterpret_cast<const float4*>(row + column)
                                 : make_float4(0.0F, 0.0F, 0.0F, 0.0F);
  };
  const float4 weight = load(norm.weight);
  wait_for_inputs();

  // The values that a thread needs to finish its output are loaded meanwhile.
  const auto o = static_cast<int>(threadIdx.x);
  const int of_token = o / 128 * kTokenTile + tile_token(o % 128);
  ConvolveAhead none;
  ResidentAhead ahead;
  if (o < kTiles * 128 && of_token < tokens) {
    const LinearSegment& segment = segment_of(group, tile);
    const int row = (tile - segment.tile_begin) * kRowTile + tile_row(o % 128);
    ahead = look_ahead<false>(segment.out, row, row_begin + of_token, plan.convolve, none);
  }

  float4 h[kTokens];
#pragma unroll
  for (int t = 0; t < kTokens; ++t)
    h[t] = load(norm.h + int64_t{row_begin + min(t, tokens - 1)} * norm.columns);
  const float scale = scale_of_lane<kTokens>(norm, h, shared.squares);
  const int eight = lane / 2;                                      // this lane has a half
  const bool leaves = tile == 0 && column / 8 * 8 < norm.columns;  // whose places are in all of it
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    uint4* to = shared.x[warp][eight / 4][t / kTokenTile] + t % kTokenTile * 4;
    put_columns(h[t], weight, __shfl_sync(kAllLanes, scale, t), to + eight % 4,
                leaves && t < tokens ? norm.x + (row_begin + t) * norm.x_stride + column : nullptr);
  }
  __syncwarp();
  float acc[kTiles][4] = {};
  constexpr float kNone[2] = {1.0F, 1.0F};
  if (works) multiply_resident<kFormat, false>(raw, &shared.x[warp][0][0][0], kNone, acc);
  store_sums(shared.sums[warp], acc);
  __syncthreads();
  if (ahead.y == nullptr) return;
  write_output<false>(ahead, add_parts(&shared.sums[0][o / 128], group.slices, kTiles, o % 128),
                      plan.convolve, none);
}

template <int kTiles>
void launch_norm(ResidentPlan plan, const Launcher& launcher) {
  const auto kernel = norm_kernel<kTiles>;
  constexpr int kBytes = sizeof(NormShared<kTiles>);
  static_assert(kBytes == norm_bytes(kTiles));
  static_assert(kBytes <= 99 * 1024);  // runs everywhere
  launcher.device->allow_shared(kernel, kBytes);
  plan.first.row_groups = ceil_div(plan.rows, kTiles * kTokenTile);
  launch(kernel, launcher, static_cast<unsigned>(plan.first.tiles * plan.first.row_groups),
         kThreads, kBytes, plan);
}

}  // namespace

void linear_norm(const LinearArgs& args, const LinearPlan& chosen, const Launcher& launcher) {
  const ResidentPlan plan = resident_plan(args);
  chosen.tokens == kTokenTile ? launch_norm<1>(plan, launcher) : launch_norm<2>(plan, launcher);
}

}  // namespace nibble::cuda
