// Within a chunk of one value head, all chunks in parallel:
//   A_ij = beta_i (k_i . k_j) exp(c_i - c_j), j < i      P_ij = (q_i . k_j) exp(c_i - c_j), j <= i
//   T = (I + A)^-1 diag(beta), forward substitution in F32; diagonals of P and T stay in F32
// Elements of (I + A)^-1 are at most 1: it is a product of contractions. Bound at T = 8192, 32
// heads of 128: 8.6 GFLOP and 0.2 GB, 0.05 ms at 4.3 TB/s.
#include "backend/cuda/ops/delta_net/delta_chunk_parts.cuh"

namespace nibble::cuda {
namespace {

constexpr float kLogAlphaMin = -100.0F;  // exp() of it is zero beside anything; keeps sums exact
constexpr int kPitch = 68;               // floats of a row of A: 16-byte rows, no bank conflicts

template <int kKDim>
struct WithinShared {
  static constexpr int kK = 0;
  static constexpr int kQ = kK + tile_bytes(kKDim);  // later T
  static constexpr int kA = kQ + tile_bytes(kKDim);
  static constexpr int kGates = kA + kChunk * kPitch * 4;
  static constexpr int kBytes = kGates + 2 * kChunk * 4;
};

struct Gates {
  float* c;     // [64], inclusive sums of log alpha
  float* beta;  // [64]
};

/// Rows past the end have log alpha = 0 and beta = 0, so that they change nothing.
__device__ void load_gates(const DeltaPrefill& in, const DeltaChunk& chunk, int v_head,
                           const Gates& gates) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < kChunk) {
    float log_alpha = 0.0F;
    float beta = 0.0F;
    if (i < chunk.rows) {
      const int64_t at = (chunk.row_begin + i) * in.gate_stride + v_head;
      const float x = in.a[at] + in.dt_bias[v_head];
      const float step = x > 20.0F ? x : log1pf(expf(x));
      log_alpha = -expf(in.a_log[v_head]) * step;
      if (log_alpha < kLogAlphaMin) log_alpha = kLogAlphaMin;
      beta = 1.0F / (1.0F + expf(-in.b[at]));
    }
    gates.beta[i] = beta;
    for (int offset = 1; offset < 32; offset *= 2) {
      const float before = __shfl_up_sync(0xFFFFFFFFU, log_alpha, offset);
      if ((i & 31) >= offset) log_alpha += before;
    }
    gates.c[i] = log_alpha;
  }
  __syncthreads();
  if (i >= 32 && i < kChunk) gates.c[i] += gates.c[31];
  __syncthreads();
}

/// Computes sum [16 rows of this warp, 64] = x k^T for row-major tiles x and k.
template <int kKDim>
__device__ void multiply_by_keys(float (&sum)[8][4], uint32_t x, uint32_t k, int row0) {
#pragma unroll
  for (int k0 = 0; k0 < kKDim; k0 += 16) {
    uint32_t a[4];
    load_left(a, x, row0, k0);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      uint32_t b[4];
      load_right_rows(b, k, k0, n * 16);
      mma_bf16(sum[2 * n], a, b[0], b[1]);
      mma_bf16(sum[2 * n + 1], a, b[2], b[3]);
    }
  }
}

/// Returns row and column of element e of fragment n of a [16, 64] product of this warp.
struct Place {
  int row, column;
};
__device__ Place place_of(int row0, int n, int e) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  return {row0 + (lane >> 2) + (e >> 1) * 8, n * 8 + (lane & 3) * 2 + (e & 1)};
}

__device__ void store_a(const float (&sum)[8][4], const Gates& gates, float* a, int row0) {
#pragma unroll
  for (int n = 0; n < 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const auto [i, j] = place_of(row0, n, e);
      a[i * kPitch + j] =
          j < i ? gates.beta[i] * sum[n][e] * __expf(gates.c[i] - gates.c[j]) : 0.0F;
    }
}

/// Stores p as the image of a tile, and its diagonal apart.
__device__ void store_p(const float (&sum)[8][4], const Gates& gates, uint8_t* p, float* diagonal,
                        int row0) {
#pragma unroll
  for (int n = 0; n < 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      const auto [i, j] = place_of(row0, n, e);
      const float low = j < i ? sum[n][e] * __expf(gates.c[i] - gates.c[j]) : 0.0F;
      const float high = j + 1 < i ? sum[n][e + 1] * __expf(gates.c[i] - gates.c[j + 1]) : 0.0F;
      if (j == i) diagonal[i] = sum[n][e];
      if (j + 1 == i) diagonal[i] = sum[n][e + 1];
      *reinterpret_cast<uint32_t*>(p + element_offset(i, j)) = to_bf16_pair(low, high);
    }
}

/// Thread j computes column j of (I + A)^-1: t_i = [i = j] - sum_{m < i} A_im t_m, in this order.
/// It is stored below the diagonal, as BF16 times beta_j.
__device__ void invert(const float* a, float beta, uint8_t* tile) {
  const int j = static_cast<int>(threadIdx.x);
  float t[kChunk];
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    float sum[4] = {i == j ? 1.0F : 0.0F, 0.0F, 0.0F, 0.0F};
#pragma unroll
    for (int m = 0; m < i; m += 4) {
      const float4 row = *reinterpret_cast<const float4*>(a + i * kPitch + m);
      sum[0] -= row.x * t[m];
      if (m + 1 < i) sum[1] -= row.y * t[m + 1];
      if (m + 2 < i) sum[2] -= row.z * t[m + 2];
      if (m + 3 < i) sum[3] -= row.w * t[m + 3];
    }
    t[i] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    *reinterpret_cast<uint16_t*>(tile + element_offset(i, j)) =
        to_bf16(i == j ? 0.0F : t[i] * beta);
  }
}

/// The grid is (chunks, v_heads).
template <int kKDim>
__global__ __launch_bounds__(kDeltaThreads) void within_kernel(
    const __grid_constant__ DeltaArgs args) {
  using Shared = WithinShared<kKDim>;
  extern __shared__ __align__(1024) uint8_t shared[];
  const DeltaShape& shape = args.in.shape;
  const int v_head = static_cast<int>(blockIdx.y);
  const int k_head = v_head / (shape.v_heads / shape.k_heads);
  const int64_t k_index = int64_t{blockIdx.x} * shape.k_heads + k_head;
  const int64_t v_index = int64_t{blockIdx.x} * shape.v_heads + v_head;
  const uint32_t base = shared_address(shared);
  constexpr int kBytes = tile_bytes(kKDim);
  copy_image<kBytes, kDeltaThreads>(base + Shared::kK, args.work.k + k_index * kBytes);
  copy_image<kBytes, kDeltaThreads>(base + Shared::kQ, args.work.q + k_index * kBytes);
  copy_async_commit();
  auto* numbers = reinterpret_cast<float*>(shared + Shared::kGates);
  const Gates gates{numbers, numbers + kChunk};
  load_gates(args.in, args.in.chunks[blockIdx.x], v_head, gates);
  float* rows = args.work.rows + v_index * kRowTerms * kChunk;
  if (threadIdx.x < kChunk) {
    rows[kLogDecay * kChunk + threadIdx.x] = gates.c[threadIdx.x];
    rows[kBeta * kChunk + threadIdx.x] = gates.beta[threadIdx.x];
  }
  copy_async_wait<0>();
  __syncthreads();

  const int row0 = static_cast<int>(threadIdx.x) / 32 * 16;
  auto* a = reinterpret_cast<float*>(shared + Shared::kA);
  {
    float sum[8][4] = {};
    multiply_by_keys<kKDim>(sum, base + Shared::kK, base + Shared::kK, row0);
    store_a(sum, gates, a, row0);
  }
  {
    float sum[8][4] = {};
    multiply_by_keys<kKDim>(sum, base + Shared::kQ, base + Shared::kK, row0);
    store_p(sum, gates, args.work.p + v_index * tile_bytes(kChunk), rows + kOwnKey * kChunk, row0);
  }
  __syncthreads();  // A is whole, q is read
  if (threadIdx.x < kChunk) invert(a, gates.beta[threadIdx.x], shared + Shared::kQ);
  __syncthreads();
  constexpr int kTileUnits = tile_bytes(kChunk) / 16;
  auto* t = reinterpret_cast<uint4*>(args.work.t) + v_index * kTileUnits;
  for (int i = static_cast<int>(threadIdx.x); i < kTileUnits; i += kDeltaThreads)
    t[i] = reinterpret_cast<const uint4*>(shared + Shared::kQ)[i];
}

struct Choice {
  void (*kernel)(DeltaArgs);
  int shared_bytes;
};

Choice choose(int k_dim) {
  return with_value<32, 64, 128>(k_dim, [&]<int kKDim>() {
    return Choice{within_kernel<kKDim>, WithinShared<kKDim>::kBytes};
  });
}

}  // namespace

void prepare_delta_within(const Launcher& launcher) {
  for (const int k_dim : {32, 64, 128}) {
    const Choice it = choose(k_dim);
    launcher.device->allow_shared(it.kernel, it.shared_bytes);
  }
}

void launch_delta_within(const DeltaArgs& args, const Launcher& launcher) {
  const DeltaShape& shape = args.in.shape;
  const Choice it = choose(shape.k_dim);
  const dim3 grid(static_cast<unsigned>(args.group.chunk_count),
                  static_cast<unsigned>(shape.v_heads));
  launch(it.kernel, launcher, grid, kDeltaThreads, static_cast<size_t>(it.shared_bytes), args);
}

}  // namespace nibble::cuda
