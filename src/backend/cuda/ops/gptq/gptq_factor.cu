// The factorisation that GPTQ needs, in F64: H = M M^T from the last block of 64 columns to the
// first, then M's inverse by rows of blocks, likewise. Both are right-looking: a block that is done
// is taken off all that it touches, so each element meets its terms from the last column down, as
// in square_matrix.cc. Bound: FLOPs, K^3/3 multiplications and as many subtractions, not fused.
#include "backend/cuda/ops/gptq/gptq.h"
#include "backend/cuda/ops/gptq/gptq_parts.cuh"
#include "backend/cuda/runtime/device_context.h"

namespace nibble::cuda {
namespace {

constexpr int kSide = 64;  // columns of a block
constexpr int kPitch = kSide + 1;
constexpr int kThreads = 256;
constexpr int kDepth = 16;  // terms of a tile in shared memory at a time
constexpr int kPairBytes = 2 * kSide * kPitch * static_cast<int>(sizeof(double));

__host__ __device__ int blocks_of(int cols) { return (cols + kSide - 1) / kSide; }

// ---- H ----

struct FillValues {
  double unit;
  double damping;
};

__global__ __launch_bounds__(kThreads) void fill_kernel(GptqInput in, FillValues values) {
  const int j = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  const int i = static_cast<int>(blockIdx.y);
  if (j >= in.cols) return;
  const int a = in.order[i / 16] * 16 + i % 16;
  const int b = in.order[j / 16] * 16 + j % 16;
  const int64_t at = a < b ? int64_t{a} * in.cols + b : int64_t{b} * in.cols + a;
  const double x = in.products[at] / values.unit + (i == j ? values.damping : 0.0);
  const int64_t to = int64_t{i} * in.cols + j;
  in.h[to] = static_cast<float>(x);
  if (i <= j) in.square[to] = x;
}

/// A thread has one block: its own small factorisation and inverse.
__global__ void block_factor_kernel(GptqInput in) {
  const int block = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (block >= in.cols / 16) return;
  double m[256];
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j)
      m[i * 16 + j] = j < i ? 0.0 : in.square[(int64_t{block} * 16 + i) * in.cols + block * 16 + j];
  for (int k = 15; k >= 0; --k) {
    const double root = sqrt(m[k * 16 + k]);
    for (int i = 0; i < k; ++i) m[i * 16 + k] = m[i * 16 + k] / root;
    m[k * 16 + k] = root;
    for (int i = 0; i < k; ++i)
      for (int j = i; j < k; ++j) m[i * 16 + j] -= m[i * 16 + k] * m[j * 16 + k];
  }
  for (int i = 15; i >= 0; --i) {
    double sum[16];
    for (int j = 0; j < 16; ++j) sum[j] = 0.0;
    for (int k = 15; k > i; --k)
      for (int j = k; j < 16; ++j) sum[j] -= m[i * 16 + k] * m[k * 16 + j];
    const double pivot = 1.0 / m[i * 16 + i];
    sum[i] = 1.0;
    for (int j = i; j < 16; ++j) m[i * 16 + j] = sum[j] * pivot;
  }
  for (int i = 0; i < 256; ++i) in.block_factors[block * 256 + i] = static_cast<float>(m[i]);
}

// ---- H = M M^T ----

/// The block on the diagonal. A thread block.
__global__ __launch_bounds__(kThreads) void diagonal_kernel(GptqInput in, int block) {
  __shared__ double d[kSide * kPitch];
  __shared__ double roots[kSide];
  const int first = block * kSide;
  const int side = min(kSide, in.cols - first);
  const int tid = static_cast<int>(threadIdx.x);
  for (int at = tid; at < side * kSide; at += kThreads) {
    const int i = at / kSide, j = at % kSide;
    if (i <= j && j < side) d[i * kPitch + j] = in.square[int64_t{first + i} * in.cols + first + j];
  }
  __syncthreads();
  for (int k = side - 1; k >= 0; --k) {
    const double pivot = d[k * kPitch + k];
    if (!(pivot > 0.0) || !isfinite(pivot)) {  // the same for all threads
      if (tid == 0) *in.broken = 1;
      return;
    }
    const double root = sqrt(pivot);
    if (tid < k) d[tid * kPitch + k] = d[tid * kPitch + k] / root;
    if (tid == k) roots[k] = root;
    __syncthreads();
    for (int at = tid; at < k * kSide; at += kThreads) {
      const int i = at / kSide, j = at % kSide;
      if (i <= j && j < k) d[i * kPitch + j] -= d[i * kPitch + k] * d[j * kPitch + k];
    }
    __syncthreads();
  }
  for (int at = tid; at < side * kSide; at += kThreads) {
    const int i = at / kSide, j = at % kSide;
    if (i > j || j >= side) continue;
    in.square[int64_t{first + i} * in.cols + first + j] = i == j ? roots[i] : d[i * kPitch + j];
  }
  for (int i = tid; i < side; i += kThreads) in.roots[first + i] = roots[i];
}

/// The columns of a block above it: 64 rows a thread block, four threads a row.
__global__ __launch_bounds__(kThreads) void column_kernel(GptqInput in, int block) {
  extern __shared__ double shared[];
  double* d = shared;                   // M's block on the diagonal
  double* r = shared + kSide * kPitch;  // the rows
  const int first = block * kSide;
  const int side = min(kSide, in.cols - first);
  const int top = static_cast<int>(blockIdx.x) * kSide;
  const int tid = static_cast<int>(threadIdx.x);
  for (int at = tid; at < kSide * kSide; at += kThreads) {
    const int i = at / kSide, j = at % kSide;
    if (j >= side) continue;
    if (i <= j) d[i * kPitch + j] = in.square[int64_t{first + i} * in.cols + first + j];
    r[i * kPitch + j] = in.square[int64_t{top + i} * in.cols + first + j];
  }
  __syncthreads();
  double* row = r + tid / 4 * kPitch;
  for (int k = side - 1; k >= 0; --k) {
    const double x = row[k] / d[k * kPitch + k];
    __syncwarp();
    if (tid % 4 == 0) row[k] = x;
    for (int j = tid % 4; j < k; j += 4) row[j] -= x * d[j * kPitch + k];
    __syncwarp();
  }
  __syncthreads();
  for (int at = tid; at < kSide * kSide; at += kThreads) {
    const int i = at / kSide, j = at % kSide;
    if (j < side) in.square[int64_t{top + i} * in.cols + first + j] = r[i * kPitch + j];
  }
}

/// A tile of 64 x 64 sums, 4 x 4 a thread, from which products of two panels are taken: panel(k, i)
/// are loaded to `a` and `b` [kDepth, kPitch], k from the last term down.
struct SumTile {
  double sum[4][4];
  int row = static_cast<int>(threadIdx.x) / 16;  // and every 16th from there
  int col = static_cast<int>(threadIdx.x) % 16;

  template <typename Load>
  __device__ void subtract(double* a, double* b, int terms, Load load) {
    for (int done = terms; done > 0; done -= kDepth) {  // `terms` is a multiple of 16
      load(done - kDepth, a, b);
      __syncthreads();
#pragma unroll
      for (int k = kDepth - 1; k >= 0; --k) {
        double x[4], y[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = a[k * kPitch + row + 16 * i];
#pragma unroll
        for (int i = 0; i < 4; ++i) y[i] = b[k * kPitch + col + 16 * i];
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) sum[i][j] -= x[i] * y[j];
      }
      __syncthreads();
    }
  }
};

/// Takes M's block of columns off all before it.
__global__ __launch_bounds__(kThreads) void trailing_kernel(GptqInput in, int block) {
  __shared__ double a[kDepth * kPitch];
  __shared__ double b[kDepth * kPitch];
  const int top = static_cast<int>(blockIdx.y) * kSide;
  const int left = static_cast<int>(blockIdx.x) * kSide;
  if (top > left) return;
  const int first = block * kSide;
  const int64_t pitch = in.cols;
  SumTile tile;
  double* to = in.square + (top + tile.row) * pitch + left + tile.col;
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) tile.sum[i][j] = to[16 * i * pitch + 16 * j];
  tile.subtract(a, b, min(kSide, in.cols - first), [&](int k0, double* x, double* y) {
    for (int at = static_cast<int>(threadIdx.x); at < kSide * kDepth; at += kThreads) {
      const int i = at / kDepth, k = at % kDepth;
      x[k * kPitch + i] = in.square[(top + i) * pitch + first + k0 + k];
      y[k * kPitch + i] = in.square[(left + i) * pitch + first + k0 + k];
    }
  });
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) to[16 * i * pitch + 16 * j] = tile.sum[i][j];
}

// ---- U = M^-1 ----

/// M^T below the diagonal.
__global__ __launch_bounds__(kThreads) void transpose_kernel(GptqInput in) {
  __shared__ double tile[16][17];
  const int x = static_cast<int>(threadIdx.x) % 16, y = static_cast<int>(threadIdx.x) / 16;
  const int top = static_cast<int>(blockIdx.y) * 16, left = static_cast<int>(blockIdx.x) * 16;
  if (top > left) return;
  tile[y][x] = in.square[int64_t{top + y} * in.cols + left + x];
  __syncthreads();
  if (left + y > top + x) in.square[int64_t{left + y} * in.cols + top + x] = tile[x][y];
}

/// Row `block` of U's blocks, from the sums so far: 64 columns a thread block, four threads a
/// column.
__global__ __launch_bounds__(kThreads) void solve_kernel(GptqInput in, int block) {
  extern __shared__ double shared[];
  double* m = shared;                   // [k, i]: M_ik of the block on the diagonal
  double* s = shared + kSide * kPitch;  // [column, i]
  const int first = block * kSide;
  const int side = min(kSide, in.cols - first);
  const int left = (block + static_cast<int>(blockIdx.x)) * kSide;
  const int tid = static_cast<int>(threadIdx.x);
  for (int at = tid; at < kSide * kSide; at += kThreads) {
    const int i = at / kSide, j = at % kSide;
    if (i < side && j < i) m[i * kPitch + j] = in.square[int64_t{first + i} * in.cols + first + j];
    if (i >= side || left + j >= in.cols) continue;
    s[j * kPitch + i] =
        left == first ? (i == j ? 1.0 : 0.0) : in.square[int64_t{first + i} * in.cols + left + j];
  }
  __syncthreads();
  double* column = s + tid / 4 * kPitch;
  if (left + tid / 4 < in.cols) {
    const unsigned four = 0xFU << (tid % 32 / 4 * 4);
    for (int k = side - 1; k >= 0; --k) {
      const double x = column[k] * (1.0 / in.roots[first + k]);
      __syncwarp(four);
      if (tid % 4 == 0) column[k] = x;
      for (int i = tid % 4; i < k; i += 4) column[i] -= m[k * kPitch + i] * x;
      __syncwarp(four);
    }
  }
  __syncthreads();
  for (int at = tid; at < kSide * kSide; at += kThreads) {
    const int i = at / kSide, j = at % kSide;
    if (i >= side || left + j >= in.cols || first + i > left + j) continue;
    in.square[int64_t{first + i} * in.cols + left + j] = s[j * kPitch + i];
  }
}

/// Takes M times row `block` of U's blocks off the rows above. What stands above the diagonal there
/// is M until the first time, M is read below it.
__global__ __launch_bounds__(kThreads) void above_kernel(GptqInput in, int block) {
  __shared__ double a[kDepth * kPitch];
  __shared__ double b[kDepth * kPitch];
  const int top = static_cast<int>(blockIdx.y) * kSide;
  const int first = block * kSide;
  const int left = first + static_cast<int>(blockIdx.x) * kSide;
  const int64_t pitch = in.cols;
  SumTile tile;
  double* to = in.square + (top + tile.row) * pitch + left + tile.col;
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) {
      const bool begun = left > first && left + tile.col + 16 * j < in.cols;
      tile.sum[i][j] = begun ? to[16 * i * pitch + 16 * j] : 0.0;
    }
  tile.subtract(a, b, min(kSide, in.cols - first), [&](int k0, double* x, double* y) {
    for (int at = static_cast<int>(threadIdx.x); at < kSide * kDepth; at += kThreads) {
      const int k = at / kSide, i = at % kSide;
      const double* row = in.square + (first + k0 + k) * pitch;
      x[k * kPitch + i] = row[top + i];
      const bool there = left + i < in.cols && left + i >= first + k0 + k;
      y[k * kPitch + i] = there ? row[left + i] : 0.0;
    }
  });
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j)
      if (left + tile.col + 16 * j < in.cols) to[16 * i * pitch + 16 * j] = tile.sum[i][j];
}

__global__ __launch_bounds__(kThreads) void narrow_kernel(GptqInput in) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at < int64_t{in.cols} * in.cols) in.factors[at] = static_cast<float>(in.square[at]);
}

/// One thread block; the sum has the order of the columns.
__global__ __launch_bounds__(kThreads) void cost_kernel(GptqInput in) {
  __shared__ double costs[kThreads];
  __shared__ double sum;
  const int tid = static_cast<int>(threadIdx.x);
  const auto cost = [&](int i) {
    const double u = in.square[int64_t{i} * in.cols + i];
    return 1.0 / (u * u);
  };
  double total = 0;
  for (int first = 0; first < in.cols; first += kThreads) {
    if (first + tid < in.cols) costs[tid] = cost(first + tid);
    __syncthreads();
    if (tid == 0)
      for (int i = 0; i < min(kThreads, in.cols - first); ++i) total += costs[i];
    __syncthreads();
  }
  if (tid == 0) sum = total;
  __syncthreads();
  for (int i = tid; i < in.cols; i += kThreads)
    in.costs[i] = static_cast<float>(static_cast<double>(in.cols) * cost(i) / sum);
}

}  // namespace

void gptq_prepare_factor(DeviceContext& device) {
  device.allow_shared(column_kernel, kPairBytes);
  device.allow_shared(solve_kernel, kPairBytes);
}

cudaError_t gptq_fill(const GptqInput& in, double unit, double damping, cudaStream_t stream) {
  const dim3 grid(blocks_for(in.cols, kThreads), static_cast<unsigned>(in.cols));
  fill_kernel<<<grid, kThreads, 0, stream>>>(in, FillValues{unit, damping});
  const unsigned blocks = blocks_for(in.cols / 16, 32);
  block_factor_kernel<<<blocks, 32, 0, stream>>>(in);
  return cudaGetLastError();
}

cudaError_t gptq_factorise(const GptqInput& in, cudaStream_t stream) {
  const cudaError_t cleared = cudaMemsetAsync(in.broken, 0, sizeof(int32_t), stream);
  if (cleared != cudaSuccess) return cleared;
  for (int block = blocks_of(in.cols) - 1; block >= 0; --block) {
    diagonal_kernel<<<1, kThreads, 0, stream>>>(in, block);
    if (block == 0) break;
    const auto before = static_cast<unsigned>(block);
    column_kernel<<<before, kThreads, kPairBytes, stream>>>(in, block);
    trailing_kernel<<<dim3(before, before), kThreads, 0, stream>>>(in, block);
  }
  return cudaGetLastError();
}

cudaError_t gptq_invert(const GptqInput& in, cudaStream_t stream) {
  const auto side = static_cast<unsigned>(in.cols / 16);
  transpose_kernel<<<dim3(side, side), kThreads, 0, stream>>>(in);
  for (int block = blocks_of(in.cols) - 1; block >= 0; --block) {
    const auto from = static_cast<unsigned>(blocks_of(in.cols) - block);
    solve_kernel<<<from, kThreads, kPairBytes, stream>>>(in, block);
    if (block == 0) break;
    above_kernel<<<dim3(from, static_cast<unsigned>(block)), kThreads, 0, stream>>>(in, block);
  }
  const unsigned blocks = blocks_for(int64_t{in.cols} * in.cols, kThreads);
  narrow_kernel<<<blocks, kThreads, 0, stream>>>(in);
  cost_kernel<<<1, kThreads, 0, stream>>>(in);
  return cudaGetLastError();
}

}  // namespace nibble::cuda
