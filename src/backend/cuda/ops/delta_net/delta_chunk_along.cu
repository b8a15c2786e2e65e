// The kernel along the chunks of a run: a block has one value head and 32 columns of its state,
// which stays in registers:
//   R = V - exp(c) (K S)   Vn = T R   O = exp(c) (q S) + P Vn
//   S = exp(c_last) S + sum_i exp(c_last - c_i) k_i Vn_i^T
// The diagonals of T and P are applied in F32, which keeps their rounding out of the largest terms.
// S, R and Vn enter products as high + low BF16 terms, 16 bits of mantissa. A state that is kept in
// BF16 (T: uint16_t) is rounded after every chunk, so its low terms are zero and left out. Bound:
// the chain of chunks, 2.7 us each on an H200: 54 KB through shared memory and four barriers.
#include "backend/cuda/ops/delta_net/delta_chunk_parts.cuh"
#include "backend/cuda/ops/delta_net/state_elements.cuh"

namespace nibble::cuda {
namespace {

constexpr int kN = kValueColumns;
constexpr int kN8 = kN / 8;
constexpr int kThreads = kDeltaAlongThreads;
constexpr int kPart = kChunk * kN * 2;  // bytes of 32 columns of v

template <int kKDim>
struct AlongShared {
  static constexpr int kQ = 0;
  static constexpr int kK = kQ + tile_bytes(kKDim);
  static constexpr int kP = kK + tile_bytes(kKDim);
  static constexpr int kT = kP + tile_bytes(kChunk);
  static constexpr int kV = kT + tile_bytes(kChunk);
  static constexpr int kC = kV + kPart;
  static constexpr int kStage = kC + 1024;
  /// Tiles of two terms have the high ones in columns 0..31 and the low ones in columns 32..63.
  static constexpr int kState = 0;  // 64 rows of S a tile
  static constexpr int kRest = kState + (kKDim + 63) / 64 * tile_bytes(2 * kN);
  static constexpr int kValues = kRest + tile_bytes(2 * kN);  // Vn
  static constexpr int kLate = kValues + tile_bytes(2 * kN);  // exp(c_last - c) Vn
  static constexpr int kFixed = kLate + tile_bytes(2 * kN);
  static_assert(kStage == along_stage_bytes(kKDim) &&
                kFixed + kStage == along_shared_bytes(kKDim, 1));
};

template <int kKDim, typename T>
class AlongBlock {
 public:
  static constexpr bool kRounded = sizeof(T) < sizeof(float);
  using Shared = AlongShared<kKDim>;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kWarpsM = kKDim / 16 < kWarps ? kKDim / 16 : kWarps;  // over rows of S
  static constexpr int kWarpN8 = kN8 * kWarpsM / kWarps;
  static_assert(kKDim / 16 <= kWarps);

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
    run_ = in_.runs[blockIdx.y];
  }

  __device__ void run() {
    load_state(run_.state_in);
    load(0);
    for (int n = 0; n < run_.chunk_count; ++n) {
      if (stages_ == 2 && n + 1 < run_.chunk_count)
        load(n + 1);
      else
        copy_async_commit();
      const DeltaChunk chunk = in_.chunks[run_.chunk_begin + n];
      publish_state();
      copy_async_wait<1>();
      __syncthreads();
      step(chunk, run_.chunk_begin + n, stage_base(stages_ == 2 ? n & 1 : 0));
      if (chunk.snapshot >= 0) store_state(chunk.snapshot);
      __syncthreads();  // the stage and the tiles are read
      if (stages_ == 1 && n + 1 < run_.chunk_count) load(n + 1);
    }
    store_state(run_.state_out);
  }

 private:
  __device__ uint32_t stage_base(int stage) const {
    return base_ + Shared::kFixed + stage * Shared::kStage;
  }
  __device__ uint8_t* pointer(uint32_t address) const { return shared_ + (address - base_); }

  __device__ void load(int n) {
    const int64_t chunk = run_.chunk_begin + n;
    const uint32_t to = stage_base(stages_ == 2 ? n & 1 : 0);
    const int64_t v = chunk * in_.shape.v_heads + v_head_;
    const int64_t k = chunk * in_.shape.k_heads + k_head_;
    constexpr int kBytes = tile_bytes(kKDim);
    constexpr int kSquare = tile_bytes(kChunk);
    copy_image<kBytes, kThreads>(to + Shared::kQ, work_.q + k * kBytes);
    copy_image<kBytes, kThreads>(to + Shared::kK, work_.k + k * kBytes);
    copy_image<kSquare, kThreads>(to + Shared::kP, work_.p + v * kSquare);
    copy_image<kSquare, kThreads>(to + Shared::kT, work_.t + v * kSquare);
    copy_image<kPart, kThreads>(to + Shared::kV,
                                work_.v + (v * in_.shape.v_dim + column0_) * kChunk);
    constexpr int kRowFloats = kRowTerms * kChunk;
    static_assert(kRowFloats * 4 <= Shared::kStage - Shared::kC);
    if (threadIdx.x < kRowFloats / 4)
      copy_async_16(to + Shared::kC + threadIdx.x * 16,
                    work_.rows + v * kRowFloats + threadIdx.x * 4, 16);
    copy_async_commit();
  }

  // ---- the state: a warp holds 16 rows and kWarpN8 * 8 columns as a product's accumulators ----

  __device__ int state_row(int half) const {
    return warp_ % kWarpsM * 16 + half * 8 + (lane_ >> 2);
  }
  __device__ int state_column(int n) const {
    return (warp_ / kWarpsM * kWarpN8 + n) * 8 + (lane_ & 3) * 2;
  }
  __device__ T* state_place(int slot, int half, int n) const {
    const int64_t row = int64_t{v_head_} * kKDim + state_row(half);
    return state_at<T>(in_.state, slot, row * in_.shape.v_dim + column0_ + state_column(n));
  }
  __device__ void load_state(int slot) {
#pragma unroll
    for (int n = 0; n < kWarpN8; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float2 pair = load_two(state_place(slot, half, n));
        state_[n][2 * half] = pair.x;
        state_[n][2 * half + 1] = pair.y;
      }
  }
  __device__ void store_state(int slot) const {
#pragma unroll
    for (int n = 0; n < kWarpN8; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        store_two(state_place(slot, half, n),
                  make_float2(state_[n][2 * half], state_[n][2 * half + 1]));
  }

  /// Stores two adjacent numbers as high and low terms of a tile.
  __device__ void put(uint32_t tile, int row, int column, float x, float y) const {
    const uint32_t high = to_bf16_pair(x, y);
    const uint32_t low = to_bf16_pair(x - low_bf16(high), y - high_bf16(high));
    *reinterpret_cast<uint32_t*>(pointer(tile + element_offset(row, column))) = high;
    *reinterpret_cast<uint32_t*>(pointer(tile + element_offset(row, column + kN))) = low;
  }
  __device__ uint32_t state_tile(int row) const {
    return base_ + Shared::kState + static_cast<uint32_t>((row >> 6) * tile_bytes(2 * kN));
  }
  __device__ void publish_state() const {
#pragma unroll
    for (int n = 0; n < kWarpN8; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = state_row(half);
        if constexpr (kRounded) {
          *reinterpret_cast<uint32_t*>(
              pointer(state_tile(row) + element_offset(row & 63, state_column(n)))) =
              to_bf16_pair(state_[n][2 * half], state_[n][2 * half + 1]);
        } else {
          put(state_tile(row), row & 63, state_column(n), state_[n][2 * half],
              state_[n][2 * half + 1]);
        }
      }
  }

  // ---- one chunk: a warp makes 16 rows and 16 columns of each [64, 32] product ----

  __device__ int row0() const { return (warp_ & 3) * 16; }
  __device__ int half_column() const { return (warp_ >> 2) * 16; }

  __device__ void step(const DeltaChunk& chunk, int64_t index, uint32_t stage) {
    const auto* c = reinterpret_cast<const float*>(pointer(stage + Shared::kC));
    float predicted[2][4] = {};
    float out[2][4] = {};
    multiply_by_state(predicted, out, stage);
    float values[2][4];
    put_rest(predicted, stage, c, values);
    scale_rows(out, c);
    __syncthreads();  // R is whole
    add_product(values, stage + Shared::kT, base_ + Shared::kRest);
    put_values(values, c);
    __syncthreads();  // Vn is whole
    add_product(out, stage + Shared::kP, base_ + Shared::kValues);
    add_own(out, values, c);
    store_out(out, chunk, index);
    update_state(stage + Shared::kK, __expf(c[kChunk - 1]));
  }

  /// predicted = K S, out = q S, sharing the loads of S.
  __device__ void multiply_by_state(float (&predicted)[2][4], float (&out)[2][4],
                                    uint32_t stage) const {
    float low[2][2][4] = {};
#pragma unroll
    for (int k0 = 0; k0 < kKDim; k0 += 16) {
      uint32_t k[4], q[4], high_term[4], low_term[4];
      load_left(k, stage + Shared::kK, row0(), k0);
      load_left(q, stage + Shared::kQ, row0(), k0);
      load_right(high_term, state_tile(k0), k0 & 63, half_column());
      if constexpr (!kRounded) load_right(low_term, state_tile(k0), k0 & 63, kN + half_column());
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        mma_bf16(predicted[n], k, high_term[2 * n], high_term[2 * n + 1]);
        mma_bf16(out[n], q, high_term[2 * n], high_term[2 * n + 1]);
        if constexpr (!kRounded) {
          mma_bf16(low[0][n], k, low_term[2 * n], low_term[2 * n + 1]);
          mma_bf16(low[1][n], q, low_term[2 * n], low_term[2 * n + 1]);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        predicted[n][e] += low[0][n][e];
        out[n][e] += low[1][n][e];
      }
  }

  /// Adds x y to sum, for a [64, 64] tile x and the two terms of y.
  __device__ void add_product(float (&sum)[2][4], uint32_t x, uint32_t y) const {
    float low[2][4] = {};
#pragma unroll
    for (int k0 = 0; k0 < kChunk; k0 += 16) {
      uint32_t a[4], high_term[4], low_term[4];
      load_left(a, x, row0(), k0);
      load_right(high_term, y, k0, half_column());
      load_right(low_term, y, k0, kN + half_column());
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        mma_bf16(sum[n], a, high_term[2 * n], high_term[2 * n + 1]);
        mma_bf16(low[n], a, low_term[2 * n], low_term[2 * n + 1]);
      }
    }
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[n][e] += low[n][e];
  }

  __device__ int row_of(int half) const { return row0() + half * 8 + (lane_ >> 2); }
  __device__ int column_of(int n) const { return half_column() + n * 8 + (lane_ & 3) * 2; }

  /// R; `own` is beta R.
  __device__ void put_rest(const float (&predicted)[2][4], uint32_t stage, const float* c,
                           float (&own)[2][4]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_of(half);
      const float here = __expf(c[row]);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const uint32_t at = static_cast<uint32_t>(row * kN + column_of(n)) * 2;
        const uint32_t v = *reinterpret_cast<const uint32_t*>(pointer(stage + Shared::kV + at));
        const float x = low_bf16(v) - here * predicted[n][2 * half];
        const float y = high_bf16(v) - here * predicted[n][2 * half + 1];
        put(base_ + Shared::kRest, row, column_of(n), x, y);
        own[n][2 * half] = c[kBeta * kChunk + row] * x;
        own[n][2 * half + 1] = c[kBeta * kChunk + row] * y;
      }
    }
  }

  /// Adds diag(P) Vn to out.
  __device__ void add_own(float (&out)[2][4], const float (&values)[2][4], const float* c) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float own_key = c[kOwnKey * kChunk + row_of(half)];
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) out[n][e] += own_key * values[n][e];
    }
  }

  __device__ void scale_rows(float (&out)[2][4], const float* c) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float here = __expf(c[row_of(half)]);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        out[n][2 * half] *= here;
        out[n][2 * half + 1] *= here;
      }
    }
  }

  __device__ void put_values(const float (&values)[2][4], const float* c) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_of(half);
      const float late = __expf(c[kChunk - 1] - c[row]);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const float x = values[n][2 * half];
        const float y = values[n][2 * half + 1];
        put(base_ + Shared::kValues, row, column_of(n), x, y);
        put(base_ + Shared::kLate, row, column_of(n), late * x, late * y);
      }
    }
  }

  /// To the workspace for the gated norm, or as it is to the caller.
  __device__ void store_out(const float (&out)[2][4], const DeltaChunk& chunk,
                            int64_t index) const {
    const int v_dim = in_.shape.v_dim;
    const bool raw = in_.z != nullptr;
    uint16_t* first = raw ? work_.o + (index * in_.shape.v_heads + v_head_) * kChunk * v_dim
                          : in_.out + chunk.row_begin * in_.out_stride + v_head_ * v_dim;
    const int64_t stride = raw ? v_dim : in_.out_stride;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_of(half);
      if (row >= chunk.rows) continue;
      uint16_t* to = first + row * stride + column0_;
#pragma unroll
      for (int n = 0; n < 2; ++n)
        *reinterpret_cast<uint32_t*>(to + column_of(n)) =
            to_bf16_pair(out[n][2 * half], out[n][2 * half + 1]);
    }
  }

  __device__ void update_state(uint32_t k, float decay) {
    float low[kWarpN8][4] = {};
#pragma unroll
    for (int n = 0; n < kWarpN8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) state_[n][e] *= decay;
    const int column = warp_ / kWarpsM * kWarpN8 * 8;
#pragma unroll
    for (int k0 = 0; k0 < kChunk; k0 += 16) {
      uint32_t a[4];
      load_left_transposed(a, k, warp_ % kWarpsM * 16, k0);
#pragma unroll
      for (int n = 0; n < kWarpN8; n += 2) {
        uint32_t high_term[4], low_term[4];
        load_right(high_term, base_ + Shared::kLate, k0, (column + n * 8) & ~15);
        load_right(low_term, base_ + Shared::kLate, k0, kN + ((column + n * 8) & ~15));
#pragma unroll
        for (int i = 0; i < 2 && i < kWarpN8; ++i) {
          const bool second = kWarpN8 == 1 ? (column & 8) != 0 : i == 1;
          mma_bf16(state_[n + i], a, second ? high_term[2] : high_term[0],
                   second ? high_term[3] : high_term[1]);
          mma_bf16(low[n + i], a, second ? low_term[2] : low_term[0],
                   second ? low_term[3] : low_term[1]);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kWarpN8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) state_[n][e] = kept<T>(state_[n][e] + low[n][e]);
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
  DeltaRun run_;
  float state_[kWarpN8][4];
};

/// The grid is (v_heads * v_dim / 32, runs); kResident blocks share an SM.
template <int kKDim, typename T, int kResident>
__global__ __launch_bounds__(kThreads,
                             kResident) void along_kernel(const __grid_constant__ DeltaArgs args,
                                                          int stages) {
  extern __shared__ __align__(1024) uint8_t shared[];
  AlongBlock<kKDim, T> block(args, shared, stages);
  block.run();
}

using AlongKernel = void (*)(DeltaArgs, int);

AlongKernel kernel_of(const DeltaChunkPlan& plan) {
  return with_value<32, 64, 128>(plan.k_dim, [&]<int kKDim>() {
    return with_value<1, 2>(plan.resident, [&]<int kResident>() {
      return plan.state == StateFormat::bf16 ? along_kernel<kKDim, uint16_t, kResident>
                                             : along_kernel<kKDim, float, kResident>;
    });
  });
}

}  // namespace

void prepare_delta_along(const Launcher& launcher) {
  for (const int k_dim : {32, 64, 128})
    for (const StateFormat state : {StateFormat::f32, StateFormat::bf16})
      for (const DeltaRuns runs : {DeltaRuns::one, DeltaRuns::several}) {
        const DeltaChunkPlan plan =
            select_delta_chunk({.k_dim = k_dim}, state, runs, launcher.card);
        launcher.device->allow_shared(kernel_of(plan), plan.shared_bytes);
      }
}

void launch_delta_along(const DeltaArgs& args, const Launcher& launcher) {
  const DeltaShape& shape = args.in.shape;
  const DeltaRuns runs = args.group.run_count > 1 ? DeltaRuns::several : DeltaRuns::one;
  const DeltaChunkPlan plan = select_delta_chunk(shape, args.in.state.format, runs, launcher.card);
  const dim3 grid(static_cast<unsigned>(shape.v_heads * shape.v_dim / kN),
                  static_cast<unsigned>(args.group.run_count));
  launch(kernel_of(plan), launcher, grid, kThreads, static_cast<size_t>(plan.shared_bytes), args,
         plan.stages);
}

}  // namespace nibble::cuda
