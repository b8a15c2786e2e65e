// y [T, N] = x [T, K] W^T in generation arithmetic, for matrices that share x. Any N; K padded to
// 256. A block of 8 warps takes tiles of 16 rows of W; warp w adds up slices w, w + 8, ... of 256
// columns, and the warps' sums are added in their order. Bound: the bytes of W.
#include "backend/cuda/launch.cuh"
#include "backend/cuda/warp_matrix.cuh"

namespace nibble::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kRowTile = 16;

enum FormatMask : int { kHasBf16 = 1, kHasFp8 = 2, kHasNvfp4 = 4 };

/// One LinearOutput with its place in the list of tiles.
struct Segment {
  LinearOutput out;
  int32_t tile_begin = 0;
};

struct Plan {
  Segment segments[kLinearsMax];
  int32_t count = 0;
  int32_t tiles = 0;
  int32_t slices = 0;
  int32_t warps_per_tile = 0;  // min(slices, 8)
  int32_t rows = 0;
  const uint16_t* x = nullptr;
  int64_t x_stride = 0;
  const int32_t* gather = nullptr;
};

constexpr int loads_of(int mask) { return mask & kHasBf16 ? 8 : mask & kHasFp8 ? 4 : 2; }

__device__ __forceinline__ int segment_of(const Plan& plan, int tile) {
  int s = 0;
  while (s + 1 < plan.count && tile >= plan.segments[s + 1].tile_begin) ++s;
  return s;
}

template <int kMask>
__device__ __forceinline__ void load_tile(const Plan& plan, int tile, int slice,
                                          RawSlice<loads_of(kMask)>& raw) {
  const Segment& segment = plan.segments[segment_of(plan, tile)];
  const DeviceLinear& w = segment.out.weight;
  const int first = (tile - segment.tile_begin) * kRowTile + static_cast<int>(threadIdx.x % 32) / 4;
  const RowPointers low = row_of(w, min(first, w.rows - 1));
  const RowPointers high = row_of(w, min(first + 8, w.rows - 1));
  if ((kMask & kHasNvfp4) != 0 && (kMask == kHasNvfp4 || w.format == Format::nvfp4))
    load_slice<Format::nvfp4>(low, high, slice, raw);
  if constexpr ((kMask & kHasFp8) != 0)
    if (kMask == kHasFp8 || w.format == Format::fp8) load_slice<Format::fp8>(low, high, slice, raw);
  if constexpr ((kMask & kHasBf16) != 0)
    if (kMask == kHasBf16 || w.format == Format::bf16)
      load_slice<Format::bf16>(low, high, slice, raw);
}

template <int kMask, int kTiles>
__device__ __forceinline__ void multiply_tile(const Plan& plan, int tile, int slice,
                                              const RawSlice<loads_of(kMask)>& raw,
                                              const uint16_t* const (&x)[kTiles],
                                              float (&acc)[kTiles][4]) {
  const Segment& segment = plan.segments[segment_of(plan, tile)];
  const DeviceLinear& w = segment.out.weight;
  const uint16_t* at[kTiles];
#pragma unroll
  for (int j = 0; j < kTiles; ++j) at[j] = x[j] + slice * kColumnPad;
  float factors[2] = {1.0F, 1.0F};
  if ((kMask & kHasNvfp4) != 0 && (kMask == kHasNvfp4 || w.format == Format::nvfp4))
    multiply_slice<Format::nvfp4>(raw, at, factors, acc);
  if constexpr ((kMask & kHasFp8) != 0) {
    if (kMask == kHasFp8 || w.format == Format::fp8) {
      if (w.layout == FactorLayout::block128) {
        const int block_row = (tile - segment.tile_begin) * kRowTile / 128;
        const float* f = w.factors + block_row * (w.cols / 128) + 2 * slice;
        factors[0] = f[0];
        factors[1] = f[1];
      }
      multiply_slice<Format::fp8>(raw, at, factors, acc);
    }
  }
  if constexpr ((kMask & kHasBf16) != 0)
    if (kMask == kHasBf16 || w.format == Format::bf16)
      multiply_slice<Format::bf16>(raw, at, factors, acc);
}

__device__ __forceinline__ float row_factor(const DeviceLinear& w, int row) {
  if (w.layout == FactorLayout::row) return w.factors[row];
  if (w.layout != FactorLayout::scalar) return 1.0F;
  return w.format == Format::nvfp4 ? w.factors[0] * kNvfp4Unscale : w.factors[0];
}

template <int kMask, int kTiles>
__global__ void __launch_bounds__(kWarps * 32) linear_kernel(const __grid_constant__ Plan plan) {
  constexpr int kTokens = 8 * kTiles;
  __shared__ float sums[kWarps][kTokens][kRowTile + 1];
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int tiles_per_block = kWarps / plan.warps_per_tile;
  const int local_tile = warp / plan.warps_per_tile;
  const int first_slice = warp % plan.warps_per_tile;
  const int row_begin = blockIdx.y * kTokens;
  const bool works = local_tile < tiles_per_block;

  int tile = blockIdx.x * tiles_per_block + local_tile;
  RawSlice<loads_of(kMask)> raw;
  if (works && tile < plan.tiles) load_tile<kMask>(plan, tile, first_slice, raw);
  wait_for_inputs();

  const uint16_t* x[kTiles];
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    const int row = min(row_begin + 8 * j + lane / 4, plan.rows - 1);
    x[j] = plan.x + (plan.gather == nullptr ? row : plan.gather[row]) * plan.x_stride;
  }
  for (int base = blockIdx.x * tiles_per_block; base < plan.tiles;
       base += gridDim.x * tiles_per_block) {
    tile = base + local_tile;
    float acc[kTiles][4] = {};
    if (works && tile < plan.tiles) {
      multiply_tile<kMask, kTiles>(plan, tile, first_slice, raw, x, acc);
      for (int slice = first_slice + kWarps; slice < plan.slices; slice += kWarps) {
        load_tile<kMask>(plan, tile, slice, raw);
        multiply_tile<kMask, kTiles>(plan, tile, slice, raw, x, acc);
      }
      const int next = tile + gridDim.x * tiles_per_block;
      if (next < plan.tiles) load_tile<kMask>(plan, next, first_slice, raw);
    }
#pragma unroll
    for (int j = 0; j < kTiles; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sums[warp][8 * j + 2 * (lane % 4) + i % 2][lane / 4 + i / 2 * 8] = acc[j][i];
    __syncthreads();
    const int tokens = min(kTokens, plan.rows - row_begin);
    for (int o = threadIdx.x; o < tiles_per_block * tokens * kRowTile; o += kWarps * 32) {
      const int t = o / (tokens * kRowTile);
      const int token = o / kRowTile % tokens;
      if (base + t >= plan.tiles) continue;
      const Segment& segment = plan.segments[segment_of(plan, base + t)];
      const int row = (base + t - segment.tile_begin) * kRowTile + o % kRowTile;
      if (row >= segment.out.weight.rows) continue;
      float total = 0.0F;
      for (int w = 0; w < plan.warps_per_tile; ++w)
        total += sums[t * plan.warps_per_tile + w][token][o % kRowTile];
      segment.out.y[(row_begin + token) * segment.out.y_stride + row] =
          total * row_factor(segment.out.weight, row);
    }
    __syncthreads();
  }
}

template <int kMask, int kTiles>
void launch_linear(const Plan& plan, const Launcher& launcher) {
  static const int resident = [] {
    int blocks = 1;
    CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, linear_kernel<kMask, kTiles>,
                                                             kWarps * 32, 0));
    return blocks;
  }();
  const int tiles_per_block = kWarps / plan.warps_per_tile;
  const int groups = (plan.tiles + tiles_per_block - 1) / tiles_per_block;
  const unsigned row_blocks = static_cast<unsigned>((plan.rows + 8 * kTiles - 1) / (8 * kTiles));
  const dim3 grid(static_cast<unsigned>(min(groups, resident * launcher.multiprocessors)),
                  row_blocks);
  launch(linear_kernel<kMask, kTiles>, launcher, grid, kWarps * 32, 0, plan);
}

template <int kMask>
void launch_for_rows(const Plan& plan, const Launcher& launcher) {
  if (plan.rows <= 8) return launch_linear<kMask, 1>(plan, launcher);
  if (plan.rows <= 16) return launch_linear<kMask, 2>(plan, launcher);
  if (plan.rows <= 32) return launch_linear<kMask, 4>(plan, launcher);
  launch_linear<kMask, 8>(plan, launcher);
}

int mask_of(Format format) {
  return format == Format::bf16 ? kHasBf16 : format == Format::fp8 ? kHasFp8 : kHasNvfp4;
}

}  // namespace

void linear(const LinearArgs& args, const Launcher& launcher) {
  Plan plan;
  plan.rows = args.rows;
  plan.x = args.x;
  plan.x_stride = args.x_stride;
  plan.gather = args.gather;
  int mask = 0;
  for (int i = 0; i < args.count; ++i) {
    const DeviceLinear& w = args.outputs[i].weight;
    CHECK(w.cols == args.outputs[0].weight.cols, "columns ", w.cols);
    mask |= mask_of(w.format);
    plan.segments[i] = {.out = args.outputs[i], .tile_begin = plan.tiles};
    plan.tiles += (w.rows + kRowTile - 1) / kRowTile;
    plan.slices = w.cols / kColumnPad;
  }
  plan.count = args.count;
  plan.warps_per_tile = min(plan.slices, kWarps);
  if (mask == kHasNvfp4) return launch_for_rows<kHasNvfp4>(plan, launcher);
  if (mask == kHasFp8) return launch_for_rows<kHasFp8>(plan, launcher);
  if (mask == kHasBf16) return launch_for_rows<kHasBf16>(plan, launcher);
  launch_for_rows<kHasBf16 | kHasFp8 | kHasNvfp4>(plan, launcher);
}

}  // namespace nibble::cuda
