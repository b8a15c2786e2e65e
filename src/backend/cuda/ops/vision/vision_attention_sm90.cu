// Attention of the vision tower by wgmma: a block has 256 queries of one frame and head, a
// warpgroup for each 64, and walks the frame's keys 64 at a time through four stages of shared
// memory. A warpgroup weighs the values of a tile while it computes the exponentials of the next.
#include "backend/cuda/ops/vision/vision.h"
#include "backend/cuda/ops/vision/vision_softmax.cuh"
#include "backend/cuda/ptx/shared_tile.cuh"
#include "backend/cuda/ptx/wgmma.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/runtime/with_value.h"

namespace nibble::cuda {
namespace {

constexpr int kThreads = kVisionQueries * 2;
constexpr int kStages = 4;
constexpr int kGroups = kVisionQueries / kTileLines;  // warpgroups
/// Bytes of a tile of 64 lines: panels of 64 columns, the last of which may be in use in part.
template <int kDim>
constexpr int kTile = (kDim + 63) / 64 * kTileLines * 128;
/// Queries, the stages of keys and values, a barrier of each for full and for empty.
template <int kDim>
constexpr int kSharedBytes = (kGroups + 2 * kStages) * kTile<kDim> + 2 * kStages * 8;

#ifdef NIBBLE_HAS_WGMMA

template <int kDim>
class WgmmaAttention {
 public:
  __device__ WgmmaAttention(const VisionAttention& in, uint8_t* shared) : block_(in, shared) {}

  __device__ void run() {
    const int tiles = (block_.frame_rows() + kTileLines - 1) / kTileLines;
    begin(tiles);
    Scores s;
    float keep[2];
    multiply_queries(s, 0);
    wgmma_wait<0>();
    wgmma_done(sums_of(s));
    weigh(s, 0, tiles, keep);
    for (int n = 0; n + 1 < tiles; ++n) {
      make_weights(s);
      wait_full(n + 1);
      multiply_queries(s, n + 1);
      multiply_values(n);
      wgmma_wait<1>();
      wgmma_done(sums_of(s));
      weigh(s, n + 1, tiles, keep);  // beside the values
      wgmma_wait<0>();
      wgmma_done(out_);
      if (block_.lane == 0) barrier_arrive(barrier(kStages + n % kStages));
      softmax_.rescale(keep, out_);
      // Into the stage of tile n - 1, which others have left by now: nobody waits for tile n here.
      if (n + kStages - 1 < tiles) load(n + kStages - 1);
    }
    make_weights(s);
    multiply_values(tiles - 1);
    wgmma_wait<0>();
    wgmma_done(out_);
    softmax_.store(block_.in, block_.head, block_.begin + block_.warp * 16, block_.end, out_);
  }

 private:
  /// Makes the barriers, loads the queries and the first tiles.
  __device__ void begin(int tiles) const {
    if (threadIdx.x < 2 * kStages)
      barrier_init(barrier(static_cast<int>(threadIdx.x)),
                   threadIdx.x < kStages ? kThreads : kThreads / 32);
    __syncthreads();
    for (int group = 0; group < kGroups; ++group)
      copy_lines(block_.base + group * kTile<kDim>, 0, block_.begin + group * kTileLines,
                 block_.end);
    for (int n = 0; n + 1 < kStages && n < tiles; ++n) load(n);
    copy_async_wait_all();
    fence_async_proxy();
    __syncthreads();
  }
  using Scores = float[kTileLines / 8][4];
  __device__ __forceinline__ static float (&sums_of(Scores& s))[32] {
    return *reinterpret_cast<float(*)[32]>(&s);
  }
  /// The full barriers of the stages, then the empty ones.
  __device__ uint32_t barrier(int which) const {
    return block_.base + (kGroups + 2 * kStages) * kTile<kDim> + which * 8;
  }
  __device__ uint32_t keys_at(int n) const {
    return block_.base + (kGroups + 2 * (n % kStages)) * kTile<kDim>;
  }
  __device__ uint32_t values_at(int n) const { return keys_at(n) + kTile<kDim>; }
  __device__ void wait_full(int n) const {
    barrier_wait(barrier(n % kStages), n / kStages & 1);
    fence_async_proxy();
  }

  __device__ void copy_lines(uint32_t to, int part, int begin, int end) const {
    copy_head_lines<kDim, kTileLines, kThreads>(
        block_.in, block_.head, part, begin, end,
        [&](int line, int chunk) { return to + tile_offset(line, chunk); });
  }
  /// Loads tile n into its stage once every warp is done with tile n - kStages.
  __device__ void load(int n) const {
    barrier_wait(barrier(kStages + n % kStages), (n / kStages & 1) ^ 1);
    const int begin = block_.in.frame_begin + n * kTileLines;
    copy_lines(keys_at(n), 1, begin, block_.in.frame_end);
    copy_lines(values_at(n), 2, begin, block_.in.frame_end);
    copy_async_arrive(barrier(n % kStages));
  }

  /// Begins to multiply the queries with the keys of tile n.
  __device__ __forceinline__ void multiply_queries(float (&s)[kTileLines / 8][4], int n) const {
    const uint64_t a = wgmma_descriptor(block_.base + (block_.warp >> 2) * kTile<kDim>);
    const uint64_t b = wgmma_descriptor(keys_at(n));
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
      const int at = (k >> 2) * (kTileLines * 128 >> 4) + (k & 3) * 2;  // panel, 32 bytes of it
      wgmma_bf16_shared(sums_of(s), a + at, b + at, k != 0);
    }
    wgmma_commit();
  }
  __device__ __forceinline__ void weigh(Scores& s, int n, int tiles, float (&keep)[2]) {
    if (n + 1 == tiles) softmax_.mask(s, block_.frame_rows() - n * kTileLines);
    softmax_.weigh(s, block_.in.head_dim, keep);
  }
  __device__ __forceinline__ void make_weights(const Scores& s) {
#pragma unroll
    for (int k = 0; k < 4; ++k) left_operand(s, k, weights_[k]);
  }
  /// Begins to add the values of tile n, weighed.
  __device__ __forceinline__ void multiply_values(int n) {
    const uint64_t b = wgmma_descriptor_columns(values_at(n), kTileLines * 128);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) wgmma_bf16_columns(out_, weights_[k], b + k * (2048 >> 4));
    wgmma_commit();
  }

  VisionBlock block_;
  float out_[kDim / 2] = {};
  uint32_t weights_[4][4];
  VisionSoftmax<kDim> softmax_;
};

#endif

template <int kDim>
__global__ __launch_bounds__(kThreads, 1) void attention_kernel(
    const __grid_constant__ VisionAttention attention) {
#ifdef NIBBLE_HAS_WGMMA
  extern __shared__ __align__(1024) uint8_t shared[];
  WgmmaAttention<kDim> block(attention, shared);
  block.run();
#endif
}

}  // namespace

VisionAttentionKernel wgmma_attention(int head_dim) {
  return with_value<32, 64, 80>(padded_head(head_dim), [&]<int kDim>() {
    return VisionAttentionKernel{attention_kernel<kDim>, kSharedBytes<kDim>};
  });
}

}  // namespace nibble::cuda
