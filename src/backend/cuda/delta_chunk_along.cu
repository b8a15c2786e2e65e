// Along the chunks of a sequence, one value head and 32 columns of its state a block; the state
// stays in registers:
//   Vn = U - W S      O = exp(c) q S + P Vn      S = exp(c_last) S + sum_i exp(c_last - c_i) k_i
//   Vn_i^T
// S enters products as high + low BF16 terms, 16 bits of mantissa. Bound: the chain of chunks, each
// 1.8 MFLOP and 60 KB a block.
#include "backend/cuda/delta_chunk_parts.cuh"

namespace nibble::cuda {
namespace {

constexpr int kN = kValueColumns;
constexpr int kN8 = kN / 8;

template <int kKDim>
struct AlongShared {
  static constexpr int kW = 0;
  static constexpr int kQ = kW + tile_bytes(kKDim);
  static constexpr int kK = kQ + tile_bytes(kKDim);
  static constexpr int kP = kK + tile_bytes(kKDim);
  static constexpr int kU = kP + tile_bytes(kChunk);
  static constexpr int kC = kU + tile_bytes(kN);
  static constexpr int kStage = kC + 1024;
  static constexpr int kStateTile = (kKDim + 63) / 64 * tile_bytes(kN);  // 64 rows a tile
  static constexpr int kFixed = 2 * kStateTile + 2 * tile_bytes(kN);
  static constexpr int bytes(int stages) { return kFixed + stages * kStage; }
};

template <int kKDim>
class AlongBlock {
 public:
  using Shared = AlongShared<kKDim>;
  static constexpr int kWarpsM = kKDim >= 64 ? 4 : kKDim / 16;  // warps over the rows of S
  static constexpr int kM = kKDim / 16 / kWarpsM;
  static constexpr int kWarpN8 = kN8 * kWarpsM / 4;

  __device__ AlongBlock(const DeltaArgs& args, uint8_t* shared, int stages)
      : in_(args.in),
        work_(args.work),
        shared_(shared),
        base_(shared_address(shared)),
        stages_(stages),
        lane_(static_cast<int>(threadIdx.x) & 31),
        warp_(static_cast<int>(threadIdx.x) / 32) {
    const int parts = in_.shape.v_dim / kN;
    v_head_ = static_cast<int>(blockIdx.x) / parts;
    column0_ = static_cast<int>(blockIdx.x) % parts * kN;
    k_head_ = v_head_ / (in_.shape.v_heads / in_.shape.k_heads);
    sequence_ = in_.sequences[blockIdx.y];
  }

  __device__ void run() {
    load_state(sequence_.state_in);
    load(0);
    for (int n = 0; n < sequence_.chunk_count; ++n) {
      if (stages_ == 2 && n + 1 < sequence_.chunk_count)
        load(n + 1);
      else
        copy_async_commit();
      stage_ = stages_ == 2 ? n & 1 : 0;
      publish_state();
      copy_async_wait<1>();
      __syncthreads();
      const DeltaChunk chunk = in_.chunks[sequence_.chunk_begin + n];
      step(chunk);
      if (chunk.snapshot >= 0) store_state(chunk.snapshot);
      __syncthreads();  // the stage and the tiles are read
      if (stages_ == 1 && n + 1 < sequence_.chunk_count) load(n + 1);
    }
    store_state(sequence_.state_out);
  }

 private:
  __device__ uint32_t stage_base(int stage) const {
    return base_ + Shared::kFixed + stage * Shared::kStage;
  }
  __device__ uint32_t high() const { return base_; }
  __device__ uint32_t low() const { return base_ + Shared::kStateTile; }
  __device__ uint32_t values() const { return base_ + 2 * Shared::kStateTile; }
  __device__ uint32_t late_values() const { return values() + tile_bytes(kN); }
  __device__ uint8_t* pointer(uint32_t address) const { return shared_ + (address - base_); }

  __device__ void load(int n) {
    const int64_t chunk = sequence_.chunk_begin + n;
    const uint32_t to = stage_base(stages_ == 2 ? n & 1 : 0);
    const int64_t v = chunk * in_.shape.v_heads + v_head_;
    const int64_t k = chunk * in_.shape.k_heads + k_head_;
    copy_tile<kKDim>(to + Shared::kW, work_.w + v * kChunk * kKDim, kKDim);
    copy_tile<kKDim>(to + Shared::kQ, work_.q + k * kChunk * kKDim, kKDim);
    copy_tile<kKDim>(to + Shared::kK, work_.k + k * kChunk * kKDim, kKDim);
    copy_tile<kChunk>(to + Shared::kP, work_.p + v * kChunk * kChunk, kChunk);
    copy_tile<kN>(to + Shared::kU, work_.v + v * kChunk * in_.shape.v_dim + column0_,
                  in_.shape.v_dim);
    if (threadIdx.x < kChunk / 4)
      copy_async_16(to + Shared::kC + threadIdx.x * 16, work_.c + v * kChunk + threadIdx.x * 4, 16);
    copy_async_commit();
  }

  // ---- the state: rows of S by m16, columns by n8, as a product's accumulators ----

  __device__ int state_row(int m, int half) const {
    return (warp_ % kWarpsM * kM + m) * 16 + half * 8 + (lane_ >> 2);
  }
  __device__ int state_n8(int n) const { return warp_ / kWarpsM * kWarpN8 + n; }
  __device__ float* state_at(int slot, int m, int half, int n) const {
    const int64_t row = int64_t{v_head_} * kKDim + state_row(m, half);
    return in_.state + slot * in_.slot_stride + row * in_.shape.v_dim + column0_ + state_n8(n) * 8 +
           (lane_ & 3) * 2;
  }
  __device__ void load_state(int slot) {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int n = 0; n < kWarpN8; ++n)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float2 pair = *reinterpret_cast<const float2*>(state_at(slot, m, half, n));
          state_[m][n][2 * half] = pair.x;
          state_[m][n][2 * half + 1] = pair.y;
        }
  }
  __device__ void store_state(int slot) const {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int n = 0; n < kWarpN8; ++n)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          *reinterpret_cast<float2*>(state_at(slot, m, half, n)) =
              make_float2(state_[m][n][2 * half], state_[m][n][2 * half + 1]);
  }

  /// S as two BF16 tiles: 64 rows of k a tile, 32 columns of v.
  __device__ static uint32_t state_offset(int row, int column) {
    return static_cast<uint32_t>((row >> 6) * tile_bytes(kN)) + element_offset(row & 63, column);
  }
  __device__ void publish_state() {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int n = 0; n < kWarpN8; ++n)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float x = state_[m][n][2 * half];
          const float y = state_[m][n][2 * half + 1];
          const uint32_t top = pack_bf16(x, y);
          const uint32_t rest = pack_bf16(x - low_bf16(top), y - high_bf16(top));
          const uint32_t at = state_offset(state_row(m, half), state_n8(n) * 8 + (lane_ & 3) * 2);
          *reinterpret_cast<uint32_t*>(pointer(high() + at)) = top;
          *reinterpret_cast<uint32_t*>(pointer(low() + at)) = rest;
        }
  }

  // ---- one chunk ----

  __device__ void step(const DeltaChunk& chunk) {
    const uint32_t stage = stage_base(stage_);
    const auto* c = reinterpret_cast<const float*>(pointer(stage + Shared::kC));
    const int row0 = warp_ * 16;
    float vn[kN8][4] = {};
    float out[kN8][4] = {};
    multiply_by_state(vn, stage + Shared::kW, row0);
    multiply_by_state(out, stage + Shared::kQ, row0);
    scale_and_subtract(vn, out, stage, c, row0);
    __syncthreads();  // Vn is whole
    add_within(out, stage + Shared::kP, row0);
    store_out(out, chunk, row0);
    update_state(stage + Shared::kK, __expf(c[kChunk - 1]));
  }

  __device__ void multiply_by_state(float (&sum)[kN8][4], uint32_t x, int row0) const {
#pragma unroll
    for (int k0 = 0; k0 < kKDim; k0 += 16) {
      uint32_t a[4];
      load_left(a, x, row0, k0);
#pragma unroll
      for (int term = 0; term < 2; ++term) {
        const uint32_t s =
            (term == 0 ? high() : low()) + static_cast<uint32_t>((k0 >> 6) * tile_bytes(kN));
#pragma unroll
        for (int n = 0; n < kN8; n += 2) {
          uint32_t b[4];
          load_right(b, s, k0 & 63, n * 8);
          mma_bf16(sum[n], a, b[0], b[1]);
          mma_bf16(sum[n + 1], a, b[2], b[3]);
        }
      }
    }
  }

  /// vn: W S -> U - W S, shared as it is (for P) and times exp(c_last - c) (for S); out times
  /// exp(c).
  __device__ void scale_and_subtract(float (&vn)[kN8][4], float (&out)[kN8][4], uint32_t stage,
                                     const float* c, int row0) const {
    const float last = c[kChunk - 1];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row0 + half * 8 + (lane_ >> 2);
      const float here = __expf(c[row]);
      const float late = __expf(last - c[row]);
#pragma unroll
      for (int n = 0; n < kN8; ++n) {
        const uint32_t at = element_offset(row, n * 8 + (lane_ & 3) * 2);
        const uint32_t u = *reinterpret_cast<const uint32_t*>(pointer(stage + Shared::kU + at));
        const float x = low_bf16(u) - vn[n][2 * half];
        const float y = high_bf16(u) - vn[n][2 * half + 1];
        *reinterpret_cast<uint32_t*>(pointer(values() + at)) = pack_bf16(x, y);
        *reinterpret_cast<uint32_t*>(pointer(late_values() + at)) = pack_bf16(late * x, late * y);
        out[n][2 * half] *= here;
        out[n][2 * half + 1] *= here;
      }
    }
  }

  __device__ void add_within(float (&out)[kN8][4], uint32_t p, int row0) const {
#pragma unroll
    for (int k0 = 0; k0 < kChunk; k0 += 16) {
      uint32_t a[4];
      load_left(a, p, row0, k0);
#pragma unroll
      for (int n = 0; n < kN8; n += 2) {
        uint32_t b[4];
        load_right(b, values(), k0, n * 8);
        mma_bf16(out[n], a, b[0], b[1]);
        mma_bf16(out[n + 1], a, b[2], b[3]);
      }
    }
  }

  __device__ void store_out(const float (&out)[kN8][4], const DeltaChunk& chunk, int row0) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row0 + half * 8 + (lane_ >> 2);
      if (row >= chunk.rows) continue;
      __nv_bfloat16* to = in_.out + (chunk.row_begin + row) * in_.out_stride +
                          v_head_ * in_.shape.v_dim + column0_ + (lane_ & 3) * 2;
#pragma unroll
      for (int n = 0; n < kN8; ++n)
        *reinterpret_cast<uint32_t*>(to + n * 8) =
            pack_bf16(out[n][2 * half], out[n][2 * half + 1]);
    }
  }

  __device__ void update_state(uint32_t k, float decay) {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int n = 0; n < kWarpN8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) state_[m][n][e] *= decay;
#pragma unroll
    for (int k0 = 0; k0 < kChunk; k0 += 16) {
      uint32_t b[(kWarpN8 + 1) / 2][4];
#pragma unroll
      for (int n = 0; n < kWarpN8; n += 2) load_right(b[n / 2], late_values(), k0, state_n8(n) * 8);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        uint32_t a[4];
        load_left_transposed(a, k, (warp_ % kWarpsM * kM + m) * 16, k0);
#pragma unroll
        for (int n = 0; n < kWarpN8; ++n)
          mma_bf16(state_[m][n], a, b[n / 2][(n & 1) * 2], b[n / 2][(n & 1) * 2 + 1]);
      }
    }
  }

  const DeltaPrefill& in_;
  const DeltaWorkspace& work_;
  uint8_t* shared_;
  uint32_t base_;
  int stages_;
  int lane_;
  int warp_;
  int v_head_;
  int k_head_;
  int column0_;
  int stage_ = 0;
  DeltaSequence sequence_;
  float state_[kM][kWarpN8][4];
};

/// Grid (v_heads * v_dim / 32, sequences).
template <int kKDim>
__global__ __launch_bounds__(kDeltaThreads) void along_kernel(
    const __grid_constant__ DeltaArgs args, int stages) {
  extern __shared__ __align__(1024) uint8_t shared[];
  AlongBlock<kKDim> block(args, shared, stages);
  block.run();
}

struct Choice {
  void (*kernel)(DeltaArgs, int);
  int stages;
  int shared_bytes;
};

template <int kKDim>
Choice choose(int shared_bytes_max) {
  const int stages = AlongShared<kKDim>::bytes(2) <= shared_bytes_max ? 2 : 1;
  return {along_kernel<kKDim>, stages, AlongShared<kKDim>::bytes(stages)};
}
Choice choose(int k_dim, int shared_bytes_max) {
  if (k_dim == 32) return choose<32>(shared_bytes_max);
  return k_dim == 64 ? choose<64>(shared_bytes_max) : choose<128>(shared_bytes_max);
}

}  // namespace

cudaError_t prepare_delta_along(int shared_bytes_max) {
  for (const int k_dim : {32, 64, 128}) {
    const Choice it = choose(k_dim, shared_bytes_max);
    const cudaError_t error = cudaFuncSetAttribute(
        it.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, it.shared_bytes);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t launch_delta_along(const DeltaArgs& args, int shared_bytes_max, cudaStream_t stream) {
  const DeltaShape& shape = args.in.shape;
  const Choice it = choose(shape.k_dim, shared_bytes_max);
  const dim3 grid(static_cast<unsigned>(shape.v_heads * shape.v_dim / kN),
                  static_cast<unsigned>(args.in.sequence_count));
  it.kernel<<<grid, kDeltaThreads, it.shared_bytes, stream>>>(args, it.stages);
  return cudaGetLastError();
}

}  // namespace nibble::cuda
