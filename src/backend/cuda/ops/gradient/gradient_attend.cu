// Attention forward and backward in tiles of 64 x 64 (gradient_attention_tiles.cuh). A block has 64
// rows of queries of a head, or of keys of a head of keys, and goes over the others that meet them.
// Nothing of size T x T is kept: backward computes probabilities again from the logarithms of the
// sums, and the gradients of queries, keys and values are a kernel each, so that every sum is in
// one block. Any card from sm_80 up; one whose blocks cannot have three tiles in shared memory
// takes gradient_attend_rows.cu.
// Bound: FLOPs of the tensor cores, three BF16 products for each: of each pair of a query and a key
// 12 head_dim forward, 48 head_dim backward.
#include "backend/cuda/ops/gradient/gradient_attend_rows.h"
#include "backend/cuda/ops/gradient/gradient_attention_tiles.cuh"

namespace nibble::cuda {
namespace {

constexpr int kSharedTiles = 3;

__device__ HeadRows queries(const GradientAttention& a, const float* values, int head) {
  return {values + int64_t{head} * a.head_dim, int64_t{a.q_heads} * a.head_dim, a.rows, a.head_dim};
}
__device__ HeadRows keys(const GradientAttention& a, const float* values, int head) {
  return {values + int64_t{head} * a.head_dim, int64_t{a.kv_heads} * a.head_dim, a.rows,
          a.head_dim};
}
__device__ float scale_of(const GradientAttention& a) {
  return 1.0F / sqrtf(static_cast<float>(a.head_dim));
}
__device__ int first_row() { return static_cast<int>(blockIdx.x) * kAttentionTile; }

/// A query row meets the keys from the beginning of its sample to itself.
struct QueryRow {
  int row = 0;
  int begin = 0;
  float log_sum = 0.0F, along = 0.0F;

  __device__ void load(const GradientAttention& a, int at) {
    row = at;
    begin = at < a.rows ? a.samples[at].begin : at + 1;  // no key
  }
  __device__ bool meets(int key) const { return key >= begin && key <= row; }
};

/// Both rows of a lane among those of its warp, with what backward() knows of them.
struct QueryRows {
  QueryRow of[2];

  __device__ QueryRows(const GradientAttention& a, int first) {
    for (int half = 0; half < 2; ++half) of[half].load(a, first + warp_row() + score_row(2 * half));
  }
  __device__ void load_back(const GradientAttention& a, const AttentionBack& back, int head) {
    for (QueryRow& one : of) {
      if (one.row >= a.rows) continue;
      one.log_sum = back.log_sum[int64_t{one.row} * a.q_heads + head];
      one.along = back.along[int64_t{one.row} * a.q_heads + head];
    }
  }
};

// ---- forward ----

/// The running maximum and sum of a row's exponentials.
struct RunningSum {
  float most = -INFINITY, total = 0.0F;
};

__device__ float most_of_quad(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFU, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFU, x, 2));
}
__device__ float sum_of_quad(float x) {
  x += __shfl_xor_sync(0xFFFFFFFFU, x, 1);
  return x + __shfl_xor_sync(0xFFFFFFFFU, x, 2);
}

/// Turns the scores of a tile into exponentials relative to the maximum so far; returns what the
/// sums before must be multiplied with.
__device__ float exponentials(const QueryRow& query, int first_key, int half, float scale,
                              Scores& s, RunningSum& running) {
  float most = running.most;
#pragma unroll
  for (int n = 0; n < kAttentionTile / 8; ++n)
#pragma unroll
    for (int i = 2 * half; i < 2 * half + 2; ++i) {
      const int key = first_key + 8 * n + score_column(i);
      s[n][i] = query.meets(key) ? scale * s[n][i] : -INFINITY;
      most = fmaxf(most, s[n][i]);
    }
  most = most_of_quad(most);
  const float base = most == -INFINITY ? 0.0F : most;  // no key so far
  const float kept = expf(running.most - base);
  float sum = 0.0F;
#pragma unroll
  for (int n = 0; n < kAttentionTile / 8; ++n)
#pragma unroll
    for (int i = 2 * half; i < 2 * half + 2; ++i) {
      s[n][i] = expf(s[n][i] - base);
      sum += s[n][i];
    }
  running.most = most;
  running.total = running.total * kept + sum_of_quad(sum);
  return kept;
}

template <int kColumns>
__global__ __launch_bounds__(kAttentionThreads,
                             1) void attend_kernel(GradientAttention a, AttentionRows rows,
                                                   float* mixed, float* log_sum) {
  using Tiles = AttentionTiles<kColumns>;
  extern __shared__ __align__(1024) uint8_t shared[];
  const uint32_t q_tile = shared_address(shared), k_tile = q_tile + Tiles::kBytes,
                 v_tile = k_tile + Tiles::kBytes;
  const int head = static_cast<int>(blockIdx.y), kv = head / (a.q_heads / a.kv_heads);
  const int first = first_row(), end = min(first + kAttentionTile, a.rows);
  const QueryRows query(a, first);
  RunningSum running[2];
  typename Tiles::Sums out = {};
  Tiles::load(q_tile, queries(a, rows.q, head), first);
  for (int key = a.samples[first].begin; key < end; key += kAttentionTile) {
    __syncthreads();
    Tiles::load(k_tile, keys(a, rows.k, kv), key);
    Tiles::load(v_tile, keys(a, rows.v, kv), key);
    __syncthreads();
    Scores s = {};
    Tiles::multiply(q_tile, k_tile, s);
    float kept[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      kept[half] = exponentials(query.of[half], key, half, scale_of(a), s, running[half]);
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) out[n][i] *= kept[i / 2];
    Tiles::accumulate(s, v_tile, out);
  }
#pragma unroll
  for (int n = 0; n < kColumns / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) out[n][i] /= running[i / 2].total;
  const HeadRows like = queries(a, mixed, head);
  Tiles::store(out, like, first, mixed + int64_t{head} * a.head_dim);
  for (int half = 0; half < 2; ++half)
    if (lane() % 4 == 0 && query.of[half].row < a.rows)
      log_sum[int64_t{query.of[half].row} * a.q_heads + head] =
          running[half].most + logf(running[half].total);
}

// ---- backward ----
//
// With p the probabilities and dp_t = dmixed . v_t: the gradient of score t is
// p_t (dp_t - sum_s p_s dp_s), and that sum, `along`, is dmixed . mixed.

__global__ __launch_bounds__(kRowThreads) void along_kernel(GradientAttention a,
                                                            AttentionBack back) {
  const int index = warp_index();  // row and head
  if (index >= a.rows * a.q_heads) return;
  float sum = 0.0F;
  for (int i = lane(); i < a.head_dim; i += kWarp) {
    const int64_t at = int64_t{index} * a.head_dim + i;
    sum = fmaf(back.mixed[at], back.dmixed[at], sum);
  }
  sum = warp_sum_float(sum);
  if (lane() == 0) back.along[index] = sum;
}

template <int kColumns>
__global__ __launch_bounds__(kAttentionThreads, 1) void queries_back_kernel(GradientAttention a,
                                                                            AttentionRows rows,
                                                                            AttentionBack back) {
  using Tiles = AttentionTiles<kColumns>;
  extern __shared__ __align__(1024) uint8_t shared[];
  const uint32_t q_tile = shared_address(shared), dmixed_tile = q_tile + Tiles::kBytes,
                 other_tile = dmixed_tile + Tiles::kBytes;
  const int head = static_cast<int>(blockIdx.y), kv = head / (a.q_heads / a.kv_heads);
  const int first = first_row(), end = min(first + kAttentionTile, a.rows);
  const float scale = scale_of(a);
  QueryRows query(a, first);
  query.load_back(a, back, head);
  typename Tiles::Sums dq = {};
  Tiles::load(q_tile, queries(a, rows.q, head), first);
  Tiles::load(dmixed_tile, queries(a, back.dmixed, head), first);
  for (int key = a.samples[first].begin; key < end; key += kAttentionTile) {
    __syncthreads();
    Tiles::load(other_tile, keys(a, rows.v, kv), key);
    __syncthreads();
    Scores dp = {}, s = {};
    Tiles::multiply(dmixed_tile, other_tile, dp);
    __syncthreads();
    Tiles::load(other_tile, keys(a, rows.k, kv), key);
    __syncthreads();
    Tiles::multiply(q_tile, other_tile, s);
#pragma unroll
    for (int n = 0; n < kAttentionTile / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const QueryRow& one = query.of[i / 2];
        const float p = expf(scale * s[n][i] - one.log_sum);
        s[n][i] =
            one.meets(key + 8 * n + score_column(i)) ? scale * p * (dp[n][i] - one.along) : 0.0F;
      }
    Tiles::accumulate(s, other_tile, dq);
  }
  Tiles::store(dq, queries(a, back.dq, head), first, back.dq + int64_t{head} * a.head_dim);
}

/// The queries of a tile, for kernels whose rows are keys.
struct QueryColumns {
  QueryRow of[kAttentionTile];
};

/// Threads below kAttentionTile fill it; barriers are the caller's.
__device__ void load_columns(const GradientAttention& a, const AttentionBack& back, int head,
                             int first, QueryColumns& columns) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= kAttentionTile) return;
  QueryRow one;
  one.load(a, first + i);
  if (one.row < a.rows) {
    one.log_sum = back.log_sum[int64_t{one.row} * a.q_heads + head];
    one.along = back.along[int64_t{one.row} * a.q_heads + head];
  }
  columns.of[i] = one;
}

/// The gradients of keys (kOfKeys) or of values: rows are keys, columns are the queries of all
/// heads that share them, one head after the other.
template <int kColumns, bool kOfKeys>
__global__ __launch_bounds__(kAttentionThreads, 1) void keys_back_kernel(GradientAttention a,
                                                                         AttentionRows rows,
                                                                         AttentionBack back) {
  using Tiles = AttentionTiles<kColumns>;
  extern __shared__ __align__(1024) uint8_t shared[];
  __shared__ QueryColumns columns;
  const uint32_t k_tile = shared_address(shared), second_tile = k_tile + Tiles::kBytes,
                 other_tile = second_tile + Tiles::kBytes;
  const int kv = static_cast<int>(blockIdx.y), group = a.q_heads / a.kv_heads;
  const int first = first_row(), last = min(first + kAttentionTile, a.rows) - 1;
  const int end = a.samples[last].end;
  const float scale = scale_of(a);
  typename Tiles::Sums sums = {};
  Tiles::load(k_tile, keys(a, rows.k, kv), first);
  if (kOfKeys) Tiles::load(second_tile, keys(a, rows.v, kv), first);
  for (int head = kv * group; head < (kv + 1) * group; ++head)
    for (int row = first; row < end; row += kAttentionTile) {
      __syncthreads();
      load_columns(a, back, head, row, columns);
      Tiles::load(other_tile, queries(a, back.dmixed, head), row);
      if (!kOfKeys) Tiles::load(second_tile, queries(a, rows.q, head), row);
      __syncthreads();
      Scores dp = {}, s = {};
      if (kOfKeys) {
        Tiles::multiply(second_tile, other_tile, dp);
        __syncthreads();
        Tiles::load(other_tile, queries(a, rows.q, head), row);
        __syncthreads();
      }
      Tiles::multiply(k_tile, kOfKeys ? other_tile : second_tile, s);
#pragma unroll
      for (int n = 0; n < kAttentionTile / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const QueryRow& one = columns.of[8 * n + score_column(i)];
          const float p = expf(scale * s[n][i] - one.log_sum);
          const float value = kOfKeys ? scale * p * (dp[n][i] - one.along) : p;
          s[n][i] = one.meets(first + warp_row() + score_row(i)) ? value : 0.0F;
        }
      Tiles::accumulate(s, other_tile, sums);
    }
  float* to = kOfKeys ? back.dk : back.dv;
  Tiles::store(sums, keys(a, to, kv), first, to + int64_t{kv} * a.head_dim);
}

// ---- launches ----

constexpr int kShared = 1024;  // bytes of QueryColumns and alignment
static_assert(sizeof(QueryColumns) <= kShared);
int columns_of(const GradientAttention& a) {
  return a.head_dim <= 64 ? 64 : a.head_dim <= 128 ? 128 : 256;
}
int dynamic_bytes(int columns) { return kSharedTiles * 2 * tile_bytes(columns); }
bool tiles_fit(const GradientAttention& a) {
  return dynamic_bytes(columns_of(a)) + kShared <= a.shared_bytes;
}

template <typename... Parameters, typename... Arguments>
cudaError_t launch_tiles(void (*kernel)(Parameters...), int columns, const GradientAttention& a,
                         int heads, cudaStream_t stream, const Arguments&... arguments) {
  const int bytes = dynamic_bytes(columns);
  const cudaError_t error = cudaFuncSetAttribute(
      reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  const dim3 grid(static_cast<unsigned>((a.rows + kAttentionTile - 1) / kAttentionTile),
                  static_cast<unsigned>(heads));
  kernel<<<grid, kAttentionThreads, static_cast<size_t>(bytes), stream>>>(a, arguments...);
  return cudaGetLastError();
}

template <int kColumns>
cudaError_t forward_of(const GradientAttention& a, const AttentionRows& rows, float* mixed,
                       float* log_sum, cudaStream_t stream) {
  return launch_tiles(attend_kernel<kColumns>, kColumns, a, a.q_heads, stream, rows, mixed,
                      log_sum);
}

template <int kColumns>
cudaError_t backward_of(const GradientAttention& a, const AttentionRows& rows,
                        const AttentionBack& back, cudaStream_t stream) {
  along_kernel<<<blocks_of_warps(int64_t{a.rows} * a.q_heads), kRowThreads, 0, stream>>>(a, back);
  cudaError_t error =
      launch_tiles(queries_back_kernel<kColumns>, kColumns, a, a.q_heads, stream, rows, back);
  if (error != cudaSuccess) return error;
  error =
      launch_tiles(keys_back_kernel<kColumns, true>, kColumns, a, a.kv_heads, stream, rows, back);
  if (error != cudaSuccess) return error;
  return launch_tiles(keys_back_kernel<kColumns, false>, kColumns, a, a.kv_heads, stream, rows,
                      back);
}

}  // namespace

cudaError_t attend_forward(const GradientAttention& shape, const AttentionRows& rows, float* mixed,
                           float* log_sum, cudaStream_t stream) {
  if (!tiles_fit(shape)) return attend_rows_forward(shape, rows, mixed, log_sum, stream);
  const int columns = columns_of(shape);
  const auto forward = columns == 64    ? forward_of<64>
                       : columns == 128 ? forward_of<128>
                                        : forward_of<256>;
  return forward(shape, rows, mixed, log_sum, stream);
}

cudaError_t attend_backward(const GradientAttention& shape, const AttentionRows& rows,
                            const AttentionBack& back, cudaStream_t stream) {
  if (!tiles_fit(shape)) return attend_rows_backward(shape, rows, back, stream);
  const int columns = columns_of(shape);
  const auto backward = columns == 64    ? backward_of<64>
                        : columns == 128 ? backward_of<128>
                                         : backward_of<256>;
  return backward(shape, rows, back, stream);
}

}  // namespace nibble::cuda
