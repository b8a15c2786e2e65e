// Online softmax over pages: a warp has 16 queries of one head, its scores and its result in
// registers. Two heads of a group share a block's keys and values where shared memory allows. It
// uses mma.sync (sm_80 up), and at head size 256 wgmma (sm_90a), where one of two warpgroups
// computes its softmax while the other multiplies. Pages of 8 and 4 bits are widened to BF16 before
// they are stored in shared memory (FP8 and NVFP4 exactly). Bound: 2 T^2 * q_heads * head_dim FLOPs
// of a whole prompt at the BF16 rate; an H200 reaches 52 % at 8,192 tokens, 62 % at 32,768.
#include "backend/cuda/ops/attention/attention_select.h"
#include "backend/cuda/ops/attention/kv_elements.cuh"
#include "backend/cuda/ptx/shared_tile.cuh"
#include "backend/cuda/ptx/wgmma.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/runtime/launch_log.h"

namespace nibble::cuda {
namespace {

constexpr float kLog2E = 1.4426950408889634F;

template <int kDim, int kHeads, bool kWgmma, KvFormat kFormat>
class FlashBlock {
 public:
  static constexpr int kThreads = kHeads * 128;
  static constexpr int kTile = tile_bytes(kDim);
  static constexpr bool kConverts = KvElements<kFormat>::kWidens;
  static constexpr bool kFourBits = kv_traits(kFormat).keys.element_bits == 4;
  static constexpr bool kGroupScales = KvElements<kFormat>::kScales == KvScales::groups;
  static constexpr int kLineBytes = static_cast<int>(kv_code_bytes(kFormat, kDim));
  // 16 bytes a thread at a time; of a small tile some threads load nothing.
  static constexpr int kCodeLoads =
      kConverts ? (kTileLines * kLineBytes / 16 + kThreads - 1) / kThreads : 1;

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
#pragma unroll
    for (int n = 0; n < kDim / 2; ++n) out_[n] = 0.0F;
    if constexpr (kWgmma) {
      walk_apart();
      store();
      return;
    }
    load_keys(0);
    load_values(0);
    if (stages_ == 2)
      walk_two_stages();
    else
      walk_one_stage();
    store();
  }

 private:
  // ---- wgmma: barriers per stage, keys and values apart ----

  enum : int { kKeysFull, kValuesFull, kKeysEmpty, kValuesEmpty };
  __device__ uint32_t barrier(int which, int n) const {
    return base_ + (kHeads + 4) * kTile + (which * 2 + (n & 1)) * 8;
  }
  __device__ void walk_apart() {
#ifdef NIBBLE_HAS_WGMMA
    if (threadIdx.x < 8)
      barrier_init(base_ + (kHeads + 4) * kTile + threadIdx.x * 8,
                   threadIdx.x < 4 ? kThreads : kThreads / 32);
    __syncthreads();
    load_apart(0);
    if constexpr (kConverts) finish_apart(0);
    copy_async_wait_all();
    fence_async_proxy();
    __syncthreads();  // the queries
    for (int n = 0; n <= tile_.index; ++n) {
      const bool more = n < tile_.index;
      if (more) load_apart(n + 1);
      const uint32_t parity = n >> 1 & 1;
      barrier_wait(barrier(kKeysFull, n), parity);
      fence_async_proxy();
      float s[8][4];
      multiply_queries(*reinterpret_cast<float(*)[32]>(&s), keys_at(n));
      if (lane_ == 0) barrier_arrive(barrier(kKeysEmpty, n));
      if constexpr (kConverts)
        if (more) convert_keys_apart(n + 1);
      if (n == tile_.index) mask(s);
      softmax(s);
      barrier_wait(barrier(kValuesFull, n), parity);
      fence_async_proxy();
      multiply_values(values_at(n));
      if (lane_ == 0) barrier_arrive(barrier(kValuesEmpty, n));
      if constexpr (kConverts)
        if (more) convert_values_apart(n + 1);
    }
#endif
  }
#ifdef NIBBLE_HAS_WGMMA
  /// Loads tile n into its stage once every warp is done with tile n - 2. Of a cache that is
  /// widened only the keys are loaded yet, into registers.
  __device__ void load_apart(int n) {
    if constexpr (kConverts) {
      fetch<KvSide::keys>(n);
      return;
    }
    const uint32_t parity = (n >> 1 & 1) ^ 1;
    barrier_wait(barrier(kKeysEmpty, n), parity);
    load<KvSide::keys>(keys_at(n), n);
    copy_async_arrive(barrier(kKeysFull, n));
    barrier_wait(barrier(kValuesEmpty, n), parity);
    load<KvSide::values>(values_at(n), n);
    copy_async_arrive(barrier(kValuesFull, n));
  }
  /// Moves the keys of tile n from registers to their stage; then it begins to load the values.
  __device__ void convert_keys_apart(int n) {
    barrier_wait(barrier(kKeysEmpty, n), (n >> 1 & 1) ^ 1);
    convert<KvSide::keys>(keys_at(n));
    fence_async_proxy();
    barrier_arrive(barrier(kKeysFull, n));
    fetch<KvSide::values>(n);
  }
  __device__ void convert_values_apart(int n) {
    barrier_wait(barrier(kValuesEmpty, n), (n >> 1 & 1) ^ 1);
    convert<KvSide::values>(values_at(n));
    fence_async_proxy();
    barrier_arrive(barrier(kValuesFull, n));
  }
  __device__ void finish_apart(int n) {
    convert_keys_apart(n);
    convert_values_apart(n);
  }
  __device__ void multiply_queries(float (&s)[32], uint32_t keys) const {
    const uint64_t a = wgmma_descriptor(base_ + (warp_ >> 2) * kTile);
    const uint64_t b = wgmma_descriptor(keys);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
      const int at = (k >> 2) * (kTileLines * 128 >> 4) + (k & 3) * 2;  // panel, 32 bytes of it
      wgmma_bf16_shared(s, a + at, b + at, k != 0);
    }
    wgmma_commit();
    wgmma_wait<0>();
  }
  __device__ void multiply_values(uint32_t values) {
    const uint64_t b = wgmma_descriptor_columns(values, kTileLines * 128);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) wgmma_bf16_columns(out_, probability_[k], b + k * (2048 >> 4));
    wgmma_commit();
    wgmma_wait<0>();
  }
#endif

  // ---- mma.sync ----

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

  template <KvSide kSide>
  __device__ const uint8_t* page_lines(int n) const {
    const int64_t page = in_.pages[tile_.page_begin + n];
    return (kSide == KvSide::keys ? in_.kv.keys : in_.kv.values) + page * in_.kv.page_stride +
           int64_t{kv_head_} * kTileLines * kv_line_bytes(kFormat, kSide, kDim);
  }
  __device__ int lines_of(int n) const { return n < tile_.index ? kTileLines : tile_.end; }

  /// Lines past the cached tokens are zero, because zero times a value that is not finite would be
  /// NaN.
  template <KvSide kSide>
  __device__ void load(uint32_t to, int n) {
    if constexpr (kConverts) {
      fetch<kSide>(n);
      convert<kSide>(to);
    } else {
      copy(to, reinterpret_cast<const uint16_t*>(page_lines<kSide>(n)), lines_of(n));
    }
    if constexpr (!kWgmma) copy_async_commit();
  }
  __device__ void copy(uint32_t to, const uint16_t* from, int lines) const {
    if constexpr (kThreads / (kDim / 8) % 8 == 0) {
      if (lines == kTileLines)
        copy_tile_rows<kDim, kThreads>(to, from);
      else
        copy_tile_lines<kDim, kThreads>(to, from, kDim, 0, lines);
    } else {
      copy_tile_lines<kDim, kThreads>(to, from, kDim, 0, lines);
    }
  }
  /// Loads a tile of codes into the registers of the block, 16 bytes at a time, and their scales.
  template <KvSide kSide>
  __device__ void fetch(int n) {
    const uint8_t* lines = page_lines<kSide>(n);
    const int end = lines_of(n) * kLineBytes;
#pragma unroll
    for (int i = 0; i < kCodeLoads; ++i) {
      const int at = (i * kThreads + static_cast<int>(threadIdx.x)) * 16;
      codes_[i] = at < end ? *reinterpret_cast<const uint4*>(lines + at) : make_uint4(0, 0, 0, 0);
      if constexpr (kFourBits) scales_[i] = at < end ? scales_of<kSide>(lines, at) : 0;
    }
  }
  /// The two scales of the 32 numbers at byte `at`, or what their line shares.
  template <KvSide kSide>
  static __device__ uint32_t scales_of(const uint8_t* lines, int at) {
    const uint8_t* scales = lines + kTileLines * kLineBytes;
    if constexpr (kGroupScales) return *reinterpret_cast<const uint16_t*>(scales + at / 8);
    const int line = at / kLineBytes;
    if constexpr (kSide == KvSide::keys) return reinterpret_cast<const uint16_t*>(scales)[line];
    return reinterpret_cast<const uint32_t*>(scales)[line];
  }
  /// Stores the codes in registers as BF16 in a tile of shared memory.
  template <KvSide kSide>
  __device__ void convert(uint32_t to) const {
    constexpr int kNumbers = kFourBits ? 32 : 16;   // of a load
    constexpr int kWordChunks = kFourBits ? 1 : 2;  // words that make 8 numbers
#pragma unroll
    for (int i = 0; i < kCodeLoads; ++i) {
      const int at = (i * kThreads + static_cast<int>(threadIdx.x)) * 16;
      if (at >= kTileLines * kLineBytes) return;
      const int chunk = at % kLineBytes * (kNumbers / 16) / 8;
#pragma unroll
      for (int c = 0; c < kNumbers / 8; ++c) {
        const uint32_t word = word_at(codes_[i], c * kWordChunks);
        const uint32_t next = kFourBits ? word >> 16 : word_at(codes_[i], 2 * c % 4 + 1);
        uint32_t wide[4];
        widen<kSide>(word, i, 2 * c, wide[0], wide[1]);
        widen<kSide>(next, i, 2 * c + 1, wide[2], wide[3]);
        store_shared_16(to + tile_offset(at / kLineBytes, chunk + c), wide);
      }
    }
  }
  /// Makes BF16 pairs of codes 4 `four` .. + 3 of a load.
  template <KvSide kSide>
  __device__ void widen(uint32_t codes, int load, int four, uint32_t& first,
                        uint32_t& second) const {
    KvElements<kFormat>::template widen<kSide>(codes, scales_[kFourBits ? load : 0], four, first,
                                               second);
  }
  __device__ void load_keys(int n) { load<KvSide::keys>(keys_at(n), n); }
  __device__ void load_values(int n) { load<KvSide::values>(values_at(n), n); }

  __device__ int query0() const { return (warp_ & 3) * 16; }

  /// Makes the probabilities of tile n, relative to the running maximum, as left operands.
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
    softmax(s);
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

  __device__ void softmax(float (&s)[8][4]) {
    const float scale = kLog2E * rsqrtf(static_cast<float>(kDim));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = highest_[half];
#pragma unroll
      for (int j = 0; j < 8; ++j) top = fmaxf(top, fmaxf(s[j][2 * half], s[j][2 * half + 1]));
      top = quad_max(top);
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
          out_[4 * d + 2 * half] *= keep;
          out_[4 * d + 2 * half + 1] *= keep;
        }
      }
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      probability_[k][0] = to_bf16_pair(s[2 * k][0], s[2 * k][1]);
      probability_[k][1] = to_bf16_pair(s[2 * k][2], s[2 * k][3]);
      probability_[k][2] = to_bf16_pair(s[2 * k + 1][0], s[2 * k + 1][1]);
      probability_[k][3] = to_bf16_pair(s[2 * k + 1][2], s[2 * k + 1][3]);
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
        mma_bf16(&out_[8 * d], probability_[k], b[0], b[1]);
        mma_bf16(&out_[8 * d + 4], probability_[k], b[2], b[3]);
      }
  }

  __device__ void store() const {
    const int head = head_ + (warp_ >> 2);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float total = quad_sum(total_[half]);
      const int query = query0() + half * 8 + (lane_ >> 2);
      if (query < tile_.begin || query >= tile_.end) continue;
      const int64_t row = tile_.row + query;
      const int column = (lane_ & 3) * 2;
      const uint16_t* gate = in_.gate == nullptr ? nullptr
                                                 : in_.gate + row * in_.gate_stride +
                                                       head * in_.gate_head_stride + column;
      uint16_t* to = in_.out + row * in_.out_stride + head * kDim;
#pragma unroll
      for (int d = 0; d < kDim / 8; ++d) {
        float x = out_[4 * d + 2 * half] / total * in_.value_scale;
        float y = out_[4 * d + 2 * half + 1] / total * in_.value_scale;
        if (gate != nullptr) {
          x /= 1.0F + __expf(-from_bf16(gate[d * 8]));
          y /= 1.0F + __expf(-from_bf16(gate[d * 8 + 1]));
        }
        const int at = d * 8 + column;
        if (in_.order == ColumnOrder::plain) {
          *reinterpret_cast<uint32_t*>(to + at) = to_bf16_pair(x, y);
        } else {
          to[packed_position(at)] = to_bf16(x);
          to[packed_position(at + 1)] = to_bf16(y);
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
  float out_[kDim / 2];
  uint32_t probability_[4][4];
  uint4 codes_[kCodeLoads];  // of the tile that is being loaded, if it is widened
  uint32_t scales_[kFourBits ? kCodeLoads : 1] = {};  // of those codes
  float highest_[2] = {-INFINITY, -INFINITY};
  float total_[2] = {0.0F, 0.0F};  // of this lane's keys
};

/// The grid is (tiles, q_heads / kHeads).
template <int kDim, int kHeads, bool kWgmma, KvFormat kFormat>
__global__ __launch_bounds__(kHeads * 128,
                             1) void flash_kernel(const __grid_constant__ FlashPrefill flash,
                                                  int stages) {
#if !defined(NIBBLE_HAS_WGMMA)
  if constexpr (kWgmma) return;
#endif
  extern __shared__ __align__(1024) uint8_t shared[];
  FlashBlock<kDim, kHeads, kWgmma, kFormat> block(flash, shared, stages);
  block.run();
}

using FlashKernel = void (*)(FlashPrefill, int);

FlashKernel kernel_of(const FlashPlan& plan) {
  return with_kv_format(plan.format, [&]<KvFormat kFormat>() {
    if (plan.matrix == FlashPlan::Matrix::wgmma) return flash_kernel<256, 2, true, kFormat>;
    return with_value<64, 128, 256>(plan.head_dim, [&]<int kDim>() {
      return plan.heads == 2 ? flash_kernel<kDim, 2, false, kFormat>
                             : flash_kernel<kDim, 1, false, kFormat>;
    });
  });
}

}  // namespace

void flash_prefill_prepare(const Launcher& launcher) {
  for (const auto format :
       {KvFormat::bf16, KvFormat::fp8, KvFormat::turboquant_4bit_nc, KvFormat::nvfp4})
    for (const int head_dim : {64, 128, 256})
      for (const int group : {1, 2}) {
        const FlashPlan plan =
            select_flash({.shape = {.q_heads = group, .kv_heads = 1, .head_dim = head_dim},
                          .kv = {.format = format}},
                         launcher.card);
        launcher.device->allow_shared(kernel_of(plan), plan.shared_bytes);
      }
}

void flash_prefill(const FlashPrefill& flash, const Launcher& launcher) {
  const FlashPlan plan = select_flash(flash, launcher.card);
  log_launch(launcher, plan, {});
  if (flash.tile_count == 0) return;
  const dim3 grid(static_cast<unsigned>(flash.tile_count),
                  static_cast<unsigned>(flash.shape.q_heads / plan.heads));
  launch(kernel_of(plan), launcher.in_order(), grid, static_cast<unsigned>(plan.heads * 128),
         static_cast<size_t>(plan.shared_bytes), flash, plan.stages);
}

}  // namespace nibble::cuda
