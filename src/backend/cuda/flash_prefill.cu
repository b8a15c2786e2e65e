// Online softmax over pages; a warp holds 16 queries of one head, its scores and its result in
// registers (mma.sync, sm_80 up). Two heads of a group share a block's keys and values where shared
// memory allows. Bound: 4 T^2 / 2 * q_heads * head_dim FLOPs of a whole prompt at the BF16 rate.
#include <algorithm>

#include "backend/cuda/flash_prefill.h"
#include "backend/cuda/prefill_tile.cuh"

namespace nibble::cuda {
namespace {

constexpr float kLog2E = 1.4426950408889634F;
constexpr unsigned kAll = 0xFFFFFFFFU;

template <int kDim, int kHeads>
class FlashBlock {
 public:
  static constexpr int kThreads = kHeads * 128;
  static constexpr int kTile = tile_bytes(kDim);
  static constexpr int shared_bytes(int stages) { return (kHeads + 2 * stages) * kTile; }

  __device__ FlashBlock(const FlashPrefill& flash, uint8_t* shared, int stages)
      : in_(flash),
        base_(shared_address(shared)),
        stages_(stages),
        lane_(static_cast<int>(threadIdx.x) & 31),
        warp_(static_cast<int>(threadIdx.x) / 32),
        tile_(flash.tiles[blockIdx.x]),
        head_(static_cast<int>(blockIdx.y) * kHeads) {
    kv_head_ = head_ / (in_.shape.q_heads / in_.shape.kv_heads);
  }

  __device__ void run() {
    for (int h = 0; h < kHeads; ++h)
      copy_tile_lines<kDim, kThreads>(
          base_ + h * kTile,
          in_.q + int64_t{tile_.row} * in_.q_stride + (head_ + h) * in_.q_head_stride, in_.q_stride,
          tile_.begin, tile_.end);
    load_keys(0);
    load_values(0);
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) out_[n][e] = 0.0F;
    if (stages_ == 2)
      walk_two_stages();
    else
      walk_one_stage();
    store();
  }

 private:
  __device__ void walk_two_stages() {
    for (int n = 0; n <= tile_.index; ++n) {
      if (n < tile_.index) {
        load_keys(n + 1);
        load_values(n + 1);
      } else {
        copy_async_commit();
        copy_async_commit();
      }
      copy_async_wait<3>();
      __syncthreads();
      score(n);
      copy_async_wait<2>();
      __syncthreads();
      accumulate(n);
      __syncthreads();
    }
  }
  __device__ void walk_one_stage() {
    for (int n = 0; n <= tile_.index; ++n) {
      copy_async_wait<1>();
      __syncthreads();
      score(n);
      __syncthreads();
      if (n < tile_.index) load_keys(n + 1);
      if (n == tile_.index) copy_async_commit();
      copy_async_wait<1>();
      __syncthreads();
      accumulate(n);
      __syncthreads();
      if (n < tile_.index) load_values(n + 1);
    }
  }

  __device__ uint32_t keys_at(int n) const {
    return base_ + (kHeads + (stages_ == 2 ? n & 1 : 0)) * kTile;
  }
  __device__ uint32_t values_at(int n) const { return keys_at(n) + stages_ * kTile; }

  /// Lines past the cached tokens are zero: a probability of zero must meet a finite value.
  __device__ void load(uint32_t to, const __nv_bfloat16* pool, int n) const {
    const int64_t page = in_.pages[tile_.page_begin + n];
    const __nv_bfloat16* from =
        pool + page * in_.page_stride + int64_t{kv_head_} * kTileLines * kDim;
    copy_tile_lines<kDim, kThreads>(to, from, kDim, 0, n < tile_.index ? kTileLines : tile_.end);
    copy_async_commit();
  }
  __device__ void load_keys(int n) const { load(keys_at(n), in_.keys, n); }
  __device__ void load_values(int n) const { load(values_at(n), in_.values, n); }

  __device__ int query0() const { return (warp_ & 3) * 16; }

  /// Probabilities of tile n, relative to the running maximum, as left operands.
  __device__ void score(int n) {
    float s[8][4] = {};
    const uint32_t queries = base_ + (warp_ >> 2) * kTile;
    const uint32_t keys = keys_at(n);
#pragma unroll
    for (int k0 = 0; k0 < kDim; k0 += 16) {
      uint32_t a[4];
      load_left(a, queries, query0(), k0);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        uint32_t b[4];
        load_right_rows(b, keys, k0, j * 16);
        mma_bf16(s[2 * j], a, b[0], b[1]);
        mma_bf16(s[2 * j + 1], a, b[2], b[3]);
      }
    }
    if (n == tile_.index) mask(s);
    soften(s);
  }

  __device__ void mask(float (&s)[8][4]) const {
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int query = query0() + (lane_ >> 2) + (e >> 1) * 8;
        const int key = j * 8 + (lane_ & 3) * 2 + (e & 1);
        if (key > query) s[j][e] = -INFINITY;
      }
  }

  __device__ void soften(float (&s)[8][4]) {
    const float scale = kLog2E * rsqrtf(static_cast<float>(kDim));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = highest_[half];
#pragma unroll
      for (int j = 0; j < 8; ++j) top = fmaxf(top, fmaxf(s[j][2 * half], s[j][2 * half + 1]));
      top = fmaxf(top, __shfl_xor_sync(kAll, top, 1));
      top = fmaxf(top, __shfl_xor_sync(kAll, top, 2));
      const float base = top == -INFINITY ? 0.0F : top;  // a NaN query has no maximum
      const float keep = exp2f((highest_[half] - base) * scale);
      highest_[half] = top;
      float sum = 0.0F;
#pragma unroll
      for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          s[j][e] = exp2f((s[j][e] - base) * scale);
          sum += s[j][e];
        }
      total_[half] = total_[half] * keep + sum;
      if (keep != 1.0F) {
#pragma unroll
        for (int d = 0; d < kDim / 8; ++d) {
          out_[d][2 * half] *= keep;
          out_[d][2 * half + 1] *= keep;
        }
      }
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      probability_[k][0] = pack_bf16(s[2 * k][0], s[2 * k][1]);
      probability_[k][1] = pack_bf16(s[2 * k][2], s[2 * k][3]);
      probability_[k][2] = pack_bf16(s[2 * k + 1][0], s[2 * k + 1][1]);
      probability_[k][3] = pack_bf16(s[2 * k + 1][2], s[2 * k + 1][3]);
    }
  }

  __device__ void accumulate(int n) {
    const uint32_t values = values_at(n);
#pragma unroll
    for (int k = 0; k < 4; ++k)
#pragma unroll
      for (int d = 0; d < kDim / 16; ++d) {
        uint32_t b[4];
        load_right(b, values, k * 16, d * 16);
        mma_bf16(out_[2 * d], probability_[k], b[0], b[1]);
        mma_bf16(out_[2 * d + 1], probability_[k], b[2], b[3]);
      }
  }

  __device__ void store() const {
    const int head = head_ + (warp_ >> 2);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = total_[half];
      total += __shfl_xor_sync(kAll, total, 1);
      total += __shfl_xor_sync(kAll, total, 2);
      const int query = query0() + half * 8 + (lane_ >> 2);
      if (query < tile_.begin || query >= tile_.end) continue;
      const int64_t row = tile_.row + query;
      const int column = (lane_ & 3) * 2;
      const __nv_bfloat16* gate = in_.gate == nullptr ? nullptr
                                                      : in_.gate + row * in_.gate_stride +
                                                            head * in_.gate_head_stride + column;
      __nv_bfloat16* to = in_.out + row * in_.out_stride + head * kDim;
#pragma unroll
      for (int d = 0; d < kDim / 8; ++d) {
        float x = out_[d][2 * half] / total;
        float y = out_[d][2 * half + 1] / total;
        if (gate != nullptr) {
          x /= 1.0F + __expf(-__bfloat162float(gate[d * 8]));
          y /= 1.0F + __expf(-__bfloat162float(gate[d * 8 + 1]));
        }
        const int at = d * 8 + column;
        if (in_.order == ColumnOrder::plain) {
          *reinterpret_cast<uint32_t*>(to + at) = pack_bf16(x, y);
        } else {
          to[packed_position(at)] = __float2bfloat16(x);
          to[packed_position(at + 1)] = __float2bfloat16(y);
        }
      }
    }
  }

  const FlashPrefill& in_;
  uint32_t base_;
  int stages_;
  int lane_;
  int warp_;
  FlashTile tile_;
  int head_;
  int kv_head_;
  float out_[kDim / 8][4];
  uint32_t probability_[4][4];
  float highest_[2] = {-INFINITY, -INFINITY};
  float total_[2] = {0.0F, 0.0F};  // of this lane's keys
};

/// Grid (tiles, q_heads / kHeads).
template <int kDim, int kHeads>
__global__ __launch_bounds__(kHeads * 128,
                             1) void flash_kernel(const __grid_constant__ FlashPrefill flash,
                                                  int stages) {
  extern __shared__ __align__(1024) uint8_t shared[];
  FlashBlock<kDim, kHeads> block(flash, shared, stages);
  block.run();
}

struct Choice {
  void (*kernel)(FlashPrefill, int);
  int heads;
  int stages;
  int shared_bytes;
};

template <int kDim, int kHeads>
Choice choice(int stages) {
  return {flash_kernel<kDim, kHeads>, kHeads, stages,
          FlashBlock<kDim, kHeads>::shared_bytes(stages)};
}

template <int kDim>
Choice choose(int group, int shared_bytes_max) {
  if (group % 2 == 0 && FlashBlock<kDim, 2>::shared_bytes(2) <= shared_bytes_max)
    return choice<kDim, 2>(2);
  if (FlashBlock<kDim, 1>::shared_bytes(2) <= shared_bytes_max) return choice<kDim, 1>(2);
  return choice<kDim, 1>(1);
}

Choice choose(int head_dim, int group, int shared_bytes_max) {
  if (head_dim == 64) return choose<64>(group, shared_bytes_max);
  return head_dim == 128 ? choose<128>(group, shared_bytes_max)
                         : choose<256>(group, shared_bytes_max);
}

}  // namespace

bool flash_prefill_supports(const FlashShape& shape) {
  return (shape.head_dim == 64 || shape.head_dim == 128 || shape.head_dim == 256) &&
         shape.kv_heads > 0 && shape.q_heads % shape.kv_heads == 0;
}

std::vector<FlashTile> flash_tiles(const Batch& batch) {
  std::vector<FlashTile> tiles;
  for (const BatchSequence& sequence : batch.sequences) {
    if (sequence.arithmetic != Arithmetic::prompt) continue;
    const int32_t kv_end = sequence.kv_begin + sequence.row_count;
    for (int32_t index = sequence.kv_begin / kTileLines; index * kTileLines < kv_end; ++index) {
      const int32_t first = index * kTileLines;
      tiles.push_back({.row = sequence.row_begin + first - sequence.kv_begin,
                       .begin = std::max(sequence.kv_begin - first, 0),
                       .end = std::min(kv_end - first, int32_t{kTileLines}),
                       .index = index,
                       .page_begin = sequence.page_begin});
    }
  }
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const FlashTile& a, const FlashTile& b) { return a.index > b.index; });
  return tiles;
}

cudaError_t flash_prefill_prepare(int shared_bytes_max) {
  for (const int head_dim : {64, 128, 256})
    for (const int group : {1, 2}) {
      const Choice it = choose(head_dim, group, shared_bytes_max);
      const cudaError_t error = cudaFuncSetAttribute(
          it.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, it.shared_bytes);
      if (error != cudaSuccess) return error;
    }
  return cudaSuccess;
}

cudaError_t flash_prefill(const FlashPrefill& flash, int shared_bytes_max, cudaStream_t stream) {
  if (flash.tile_count == 0) return cudaSuccess;
  const FlashShape& shape = flash.shape;
  const Choice it = choose(shape.head_dim, shape.q_heads / shape.kv_heads, shared_bytes_max);
  const dim3 grid(static_cast<unsigned>(flash.tile_count),
                  static_cast<unsigned>(shape.q_heads / it.heads));
  it.kernel<<<grid, static_cast<unsigned>(it.heads * 128), it.shared_bytes, stream>>>(flash,
                                                                                      it.stages);
  return cudaGetLastError();
}

}  // namespace nibble::cuda
