// Sums of calibration: H = sum over rows of x x^T per input, rows r of x BF16 [T, K] in packed
// column order, experts' rows gathered. Limits: K padded to 64 columns with zeros. Any card from
// sm_80 up (mma.sync, cp.async).
// Bound: FLOPs, T K (K + 1) of a full H (tiles of 128 x 128 on and above the diagonal); of 16x16
// blocks and of diagonals the tile of 64 x 64 columns around each is made whole, 128 T K, and what
// is not wanted is dropped: four times the arithmetic, still under what reading x from L2 takes.
#include "backend/cuda/ops/calibration/input_segments.cuh"
#include "backend/cuda/ops/calibration/input_sums.h"
#include "backend/cuda/ptx/device_math.cuh"
#include "backend/cuda/ptx/shared_tile.cuh"

namespace nibble::cuda {
namespace {

constexpr int kWarp = 32;
constexpr unsigned kAll = 0xFFFFFFFFU;
constexpr int kThreads = 256;
constexpr int kPanel = 64;        // columns of a 128-byte line of shared memory
constexpr int kStageTokens = 32;  // rows of x at a time
constexpr int kStages = 3;
constexpr float kLargestFloat = 3.402823466e38F;

// ---- which rows count ----

__global__ __launch_bounds__(kThreads) void row_kernel(InputRows in, float* row_amax) {
  const int row = static_cast<int>((blockIdx.x * kThreads + threadIdx.x) / kWarp);
  if (row >= in.x_rows) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int padded = (in.cols + kPanel - 1) / kPanel * kPanel;
  const uint16_t* x = in.packed_x + row * in.x_stride;
  float most = 0.0F;
  bool sound = true;
  for (int i = lane * 8; i < padded; i += kWarp * 8) {
    const uint4 v = *reinterpret_cast<const uint4*>(x + i);
    const uint32_t pairs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      const float low = fabsf(low_bf16(pairs[p]));
      const float high = fabsf(high_bf16(pairs[p]));
      sound = sound && low <= kLargestFloat && high <= kLargestFloat;  // false for NaN
      most = fmaxf(most, fmaxf(low, high));
    }
  }
  most = warp_max(most);
  sound = __all_sync(kAll, sound) != 0;
  if (lane == 0) row_amax[row] = sound ? most : -1.0F;
}

/// A block has one input.
__global__ __launch_bounds__(kThreads) void see_kernel(InputRows in, SumScratch scratch,
                                                       SeenRows* seen) {
  __shared__ float amax_of[kThreads];
  __shared__ int sound_of[kThreads];
  const Segment rows = segment_of(in, static_cast<int>(blockIdx.x));
  const int tid = static_cast<int>(threadIdx.x);
  float most = 0.0F;
  int sound = 0;
  for (int a = rows.begin + tid; a < rows.end; a += kThreads) {
    const int row = in.gather == nullptr ? a : in.gather[a];
    const float amax = scratch.row_amax[row];
    scratch.row[a] = amax < 0.0F ? -1 : row;
    most = fmaxf(most, amax);
    sound += amax < 0.0F ? 0 : 1;
  }
  amax_of[tid] = most;
  sound_of[tid] = sound;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (tid >= half) continue;
    amax_of[tid] = fmaxf(amax_of[tid], amax_of[tid + half]);
    sound_of[tid] += sound_of[tid + half];
  }
  if (tid != 0) return;
  SeenRows& to = seen[blockIdx.x];
  to.amax = fmax(to.amax, static_cast<double>(amax_of[0]));
  to.sound += sound_of[0];
  to.bad += rows.end - rows.begin - sound_of[0];
}

__global__ void segment_kernel(const ExpertTile* tiles, const int32_t* tile_count,
                               Segment* segments) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= *tile_count) return;
  const ExpertTile tile = tiles[i];
  // The tiles of an expert are adjacent and in order.
  const bool first = i == 0 || tiles[i - 1].expert != tile.expert;
  const bool last = i + 1 == *tile_count || tiles[i + 1].expert != tile.expert;
  if (first) segments[tile.expert].begin = tile.begin;
  if (last) segments[tile.expert].end = tile.begin + tile.count;
}

// ---- second moments ----

/// A tile of kTile x kTile columns, of which a warp has kWarpRows x kWarpCols.
template <int kTile>
struct TileShape {
  static constexpr int kWarpRows = kTile / 2;
  static constexpr int kWarpCols = 32;
  static constexpr int kWarps = 2 * (kTile / kWarpCols);
  static constexpr int kBlock = kWarps * kWarp;
  static constexpr int kPanels = kTile / kPanel;
  static constexpr int kSideBytes = kPanels * kStageTokens * 128;
  static constexpr int kStageBytes = 2 * kSideBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes;
};

template <int kTile>
class MomentTile {
  using Shape = TileShape<kTile>;
  static constexpr int kChunks = kTile / 8;  // 16-byte chunks of one row and side
  static constexpr int kFragments = Shape::kWarpRows / 16;

 public:
  __device__ MomentTile(const InputRows& in, const int32_t* row, uint32_t shared)
      : in_(in), row_(row), shared_(shared) {}

  /// Computes sums = X_a^T X_b over the assignments of a segment.
  __device__ void run(Segment rows, int column_a, int column_b) {
    column_a_ = column_a;
    column_b_ = column_b;
    const int steps = (rows.end - rows.begin + kStageTokens - 1) / kStageTokens;
    for (int s = 0; s < kStages - 1; ++s) load(rows, s, steps);
    for (int s = 0; s < steps; ++s) {
      copy_async_wait<kStages - 2>();
      __syncthreads();
      load(rows, s + kStages - 1, steps);
      multiply(shared_ + static_cast<uint32_t>(s % kStages * Shape::kStageBytes));
    }
    copy_async_wait_all();
  }

  /// Hands every sum with its two columns, in plain order, to `to`.
  template <typename Store>
  __device__ void store(const Store& to) const {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int row0 = column_a_ + warp % 2 * Shape::kWarpRows + lane / 4;
    const int col0 = column_b_ + warp / 2 * Shape::kWarpCols + lane % 4 * 2;
#pragma unroll
    for (int m = 0; m < kFragments; ++m)
#pragma unroll
      for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          to(packed_column(row0 + 16 * m + i / 2 * 8), packed_column(col0 + 8 * n + i % 2),
             sums_[m][n][i]);
  }

 private:
  bool __device__ diagonal() const { return column_a_ == column_b_; }

  /// Stage `step`: rows that do not count, and columns beyond K, are zeros.
  __device__ void load(Segment rows, int step, int steps) {
    if (step < steps) {
      const uint32_t stage = shared_ + static_cast<uint32_t>(step % kStages * Shape::kStageBytes);
      const int sides = diagonal() ? 1 : 2;
      for (int i = static_cast<int>(threadIdx.x); i < sides * kStageTokens * kChunks;
           i += Shape::kBlock) {
        const int token = i / kChunks % kStageTokens;
        const int side = i / (kChunks * kStageTokens);
        const int chunk = i % kChunks;
        const int a = rows.begin + step * kStageTokens + token;
        const int row = a < rows.end ? row_[a] : -1;
        const int column = (side == 0 ? column_a_ : column_b_) + chunk * 8;
        const bool counts = row >= 0 && column < in_.x_stride;
        const uint16_t* from = counts ? in_.packed_x + row * in_.x_stride + column : in_.packed_x;
        copy_async_16(stage + static_cast<uint32_t>(side * Shape::kSideBytes) +
                          line(chunk / 8, token, chunk % 8),
                      from, counts ? 16 : 0);
      }
    }
    copy_async_commit();
  }

  static __device__ uint32_t line(int panel, int token, int chunk) {
    return static_cast<uint32_t>(panel * kStageTokens * 128) + swizzled_offset(token, chunk);
  }

  /// Loads 16 tokens x 16 columns from `column` on: {tokens 0-7 | 8-15} x {columns 0-7 | 8-15},
  /// each transposed. [0] has low tokens and low columns, [1] high columns, [2] high tokens, [3]
  /// both.
  static __device__ void load_columns(uint32_t side, int token, int column, uint32_t (&r)[4]) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int at = token + lane / 16 * 8 + lane % 8;
    const int chunk = column / 8 + lane / 8 % 2;
    load_matrix_4_transposed(r, side + line(chunk / 8, at, chunk % 8));
  }

  __device__ void multiply(uint32_t stage) {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const uint32_t other = stage + (diagonal() ? 0U : static_cast<uint32_t>(Shape::kSideBytes));
#pragma unroll
    for (int token = 0; token < kStageTokens; token += 16) {
      uint32_t b[2][4];
#pragma unroll
      for (int n = 0; n < 2; ++n)
        load_columns(other, token, warp / 2 * Shape::kWarpCols + 16 * n, b[n]);
#pragma unroll
      for (int m = 0; m < kFragments; ++m) {
        uint32_t a[4];
        load_columns(stage, token, warp % 2 * Shape::kWarpRows + 16 * m, a);
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          mma_bf16(sums_[m][2 * n], a, b[n][0], b[n][2]);
          mma_bf16(sums_[m][2 * n + 1], a, b[n][1], b[n][3]);
        }
      }
    }
  }

  const InputRows& in_;
  const int32_t* row_;
  uint32_t shared_;
  int column_a_ = 0;
  int column_b_ = 0;
  float sums_[kFragments][4][4] = {};
};

/// Returns tile `index` of those on and above the diagonal of a square of `side` tiles.
__device__ int2 upper_tile(int index, int side) {
  int a = 0;
  for (int left = side; index >= left; --left, ++a) index -= left;
  return make_int2(a, a + index);
}

template <MomentKind kKind, int kTile>
__global__ __launch_bounds__(TileShape<kTile>::kBlock) void moment_kernel(
    const __grid_constant__ InputRows in, const int32_t* row, double* const* moments) {
  __shared__ __align__(1024) uint8_t shared[TileShape<kTile>::kSharedBytes];
  double* to = moments[blockIdx.y];
  const Segment rows = segment_of(in, static_cast<int>(blockIdx.y));
  if (to == nullptr || rows.begin >= rows.end) return;
  const int side = (in.cols + kTile - 1) / kTile;
  const int index = static_cast<int>(blockIdx.x);
  const int2 at = kKind == MomentKind::full ? upper_tile(index, side) : make_int2(index, index);
  MomentTile<kTile> tile(in, row, shared_address(shared));
  tile.run(rows, at.x * kTile, at.y * kTile);
  const int cols = in.cols;
  tile.store([to, cols](int i, int j, float sum) {
    if (i >= cols || j >= cols) return;
    if (kKind == MomentKind::diagonal && i == j) to[i] += static_cast<double>(sum);
    if (kKind == MomentKind::blocks && i / 16 == j / 16)
      to[i * 16 + j % 16] += static_cast<double>(sum);
    if (kKind == MomentKind::full && i <= j) to[int64_t{i} * cols + j] += static_cast<double>(sum);
  });
}

template <MomentKind kKind, int kTile>
cudaError_t launch_moments(const InputRows& in, const SumScratch& scratch, double* const* moments,
                           cudaStream_t stream) {
  const int side = (in.cols + kTile - 1) / kTile;
  const int tiles = kKind == MomentKind::full ? side * (side + 1) / 2 : side;
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(in.inputs));
  moment_kernel<kKind, kTile>
      <<<grid, TileShape<kTile>::kBlock, 0, stream>>>(in, scratch.row, moments);
  return cudaGetLastError();
}

__global__ __launch_bounds__(kThreads) void square_kernel(double* const* moments, int cols,
                                                          double* squares) {
  const double* from = moments[blockIdx.x];
  if (from == nullptr) return;
  for (int i = static_cast<int>(threadIdx.x); i < cols; i += kThreads)
    squares[int64_t{blockIdx.x} * cols + i] = from[int64_t{i} * cols + i];
}

// ---- hidden states ----

__global__ __launch_bounds__(kThreads) void widen_kernel(const uint4* from, int64_t count,
                                                         float4* to) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const uint4 v = from[i];
  to[2 * i] = make_float4(low_bf16(v.x), high_bf16(v.x), low_bf16(v.y), high_bf16(v.y));
  to[2 * i + 1] = make_float4(low_bf16(v.z), high_bf16(v.z), low_bf16(v.w), high_bf16(v.w));
}

__global__ __launch_bounds__(kThreads) void narrow_kernel(const float4* from, int64_t count,
                                                          uint4* to) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const float4 a = from[2 * i];
  const float4 b = from[2 * i + 1];
  to[i] = make_uint4(to_bf16_pair(a.x, a.y), to_bf16_pair(a.z, a.w), to_bf16_pair(b.x, b.y),
                     to_bf16_pair(b.z, b.w));
}

unsigned blocks_for(int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

}  // namespace

cudaError_t expert_segments(const ExpertTile* tiles, const int32_t* tile_count, int32_t tiles_max,
                            int32_t experts, Segment* segments, cudaStream_t stream) {
  const cudaError_t error =
      cudaMemsetAsync(segments, 0, static_cast<size_t>(experts) * sizeof(Segment), stream);
  if (error != cudaSuccess || tiles_max == 0) return error;
  segment_kernel<<<blocks_for(tiles_max), kThreads, 0, stream>>>(tiles, tile_count, segments);
  return cudaGetLastError();
}

cudaError_t see_rows(const InputRows& in, const SumScratch& scratch, SeenRows* seen,
                     cudaStream_t stream) {
  if (in.x_rows == 0) return cudaSuccess;
  if (in.x_stride % 8 != 0) return cudaErrorInvalidValue;
  row_kernel<<<blocks_for(int64_t{in.x_rows} * kWarp), kThreads, 0, stream>>>(in, scratch.row_amax);
  see_kernel<<<static_cast<unsigned>(in.inputs), kThreads, 0, stream>>>(in, scratch, seen);
  return cudaGetLastError();
}

cudaError_t add_moments(const InputRows& in, const SumScratch& scratch, MomentKind kind,
                        double* const* moments, cudaStream_t stream) {
  if (in.x_rows == 0) return cudaSuccess;
  if (kind == MomentKind::full)
    return launch_moments<MomentKind::full, 128>(in, scratch, moments, stream);
  if (kind == MomentKind::blocks)
    return launch_moments<MomentKind::blocks, 64>(in, scratch, moments, stream);
  return launch_moments<MomentKind::diagonal, 64>(in, scratch, moments, stream);
}

cudaError_t copy_squares(double* const* moments, int32_t inputs, int32_t cols, double* squares,
                         cudaStream_t stream) {
  square_kernel<<<static_cast<unsigned>(inputs), kThreads, 0, stream>>>(moments, cols, squares);
  return cudaGetLastError();
}

cudaError_t widen_rows(const uint16_t* from, int64_t count, float* to, cudaStream_t stream) {
  widen_kernel<<<blocks_for(count / 8), kThreads, 0, stream>>>(
      reinterpret_cast<const uint4*>(from), count / 8, reinterpret_cast<float4*>(to));
  return cudaGetLastError();
}

cudaError_t narrow_rows(const float* from, int64_t count, uint16_t* to, cudaStream_t stream) {
  narrow_kernel<<<blocks_for(count / 8), kThreads, 0, stream>>>(
      reinterpret_cast<const float4*>(from), count / 8, reinterpret_cast<uint4*>(to));
  return cudaGetLastError();
}

}  // namespace nibble::cuda
