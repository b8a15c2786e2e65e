// Attention of the vision tower by mma.sync: a block has 256 queries of one frame and head, a
// warp for each 16, and walks the frame's keys 64 at a time through two stages of shared memory.
#include "backend/cuda/ops/vision/vision.h"
#include "backend/cuda/ops/vision/vision_softmax.cuh"
#include "backend/cuda/ptx/bf16.cuh"
#include "backend/cuda/ptx/cluster.cuh"
#include "backend/cuda/ptx/copy.cuh"
#include "backend/cuda/ptx/device_math.cuh"
#include "backend/cuda/ptx/mma.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/runtime/with_value.h"

namespace nibble::cuda {
namespace {

constexpr int kThreads = kVisionQueries * 2;
constexpr int kKeys = 64;

/// Bytes of a line in shared memory: 16 more than it has, so that ldmatrix meets no bank twice.
template <int kDim>
constexpr int kLine = kDim * 2 + 16;
template <int kDim>
constexpr int kSharedBytes = (kVisionQueries + 4 * kKeys) * kLine<kDim>;

template <int kDim>
class AttentionBlock {
 public:
  __device__ AttentionBlock(const VisionAttention& in, uint8_t* shared) : block_(in, shared) {}

  __device__ void run() {
    const int tiles = (block_.frame_rows() + kKeys - 1) / kKeys;
    copy_lines<kVisionQueries>(block_.base, 0, block_.begin, block_.end);
    load(0);
    copy_async_commit();
    for (int n = 0; n < tiles; ++n) {
      if (n + 1 < tiles) load(n + 1);
      copy_async_commit();
      copy_async_wait<1>();
      __syncthreads();
      if (n == 0) load_queries();
      step(n);
      __syncthreads();
    }
    softmax_.store(block_.in, block_.head, block_.begin + block_.warp * 16, block_.end, out_);
  }

 private:
  static constexpr int kBytes = kLine<kDim>;

  __device__ uint32_t keys_at(int n) const {
    return block_.base + (kVisionQueries + (n & 1) * 2 * kKeys) * kBytes;
  }
  __device__ uint32_t values_at(int n) const { return keys_at(n) + kKeys * kBytes; }

  template <int kLines>
  __device__ void copy_lines(uint32_t to, int part, int begin, int end) const {
    copy_head_lines<kDim, kLines, kThreads>(
        block_.in, block_.head, part, begin, end,
        [&](int line, int chunk) { return to + line * kBytes + chunk * 16; });
  }
  __device__ void load(int n) const {
    const int begin = block_.in.frame_begin + n * kKeys;
    copy_lines<kKeys>(keys_at(n), 1, begin, block_.in.frame_end);
    copy_lines<kKeys>(values_at(n), 2, begin, block_.in.frame_end);
  }

  __device__ void load_queries() {
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k)
      load_matrix_4(queries_[k], block_.base + (block_.warp * 16 + (block_.lane & 15)) * kBytes +
                                     (2 * k + (block_.lane >> 4)) * 16);
  }

  __device__ void step(int n) {
    float s[kKeys / 8][4] = {};
    const uint32_t keys = keys_at(n);
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k)
#pragma unroll
      for (int j = 0; j < kKeys / 16; ++j) {
        uint32_t b[4];
        const int line = j * 16 + (block_.lane & 7) + (block_.lane >> 4 << 3);
        load_matrix_4(b, keys + line * kBytes + (2 * k + (block_.lane >> 3 & 1)) * 16);
        mma_bf16(s[2 * j], queries_[k], b[0], b[1]);
        mma_bf16(s[2 * j + 1], queries_[k], b[2], b[3]);
      }
    const int left = block_.frame_rows() - n * kKeys;
    if (left < kKeys) softmax_.mask(s, left);
    float keep[2];
    softmax_.weigh(s, block_.in.head_dim, keep);
    softmax_.rescale(keep, out_);
    const uint32_t values = values_at(n);
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
      uint32_t p[4];
      left_operand(s, k, p);
#pragma unroll
      for (int d = 0; d < kDim / 16; ++d) {
        uint32_t b[4];
        load_matrix_4_transposed(
            b, values + (k * 16 + (block_.lane & 15)) * kBytes + (2 * d + (block_.lane >> 4)) * 16);
        mma_bf16(&out_[8 * d], p, b[0], b[1]);
        mma_bf16(&out_[8 * d + 4], p, b[2], b[3]);
      }
    }
  }

  VisionBlock block_;
  uint32_t queries_[kDim / 16][4];
  float out_[kDim / 2] = {};
  VisionSoftmax<kDim> softmax_;
};

template <int kDim>
__global__ __launch_bounds__(kThreads, 1) void attention_kernel(
    const __grid_constant__ VisionAttention attention) {
  extern __shared__ __align__(16) uint8_t shared[];
  AttentionBlock<kDim> block(attention, shared);
  block.run();
}

VisionAttentionKernel kernel_of(int head_dim, const Architecture& card) {
  if (card.has_wgmma()) return wgmma_attention(head_dim);
  return with_value<32, 64, 80>(padded_head(head_dim), [&]<int kDim>() {
    return VisionAttentionKernel{attention_kernel<kDim>, kSharedBytes<kDim>};
  });
}

}  // namespace

void prepare_vision_attention(const Launcher& launcher) {
  for (const int head_dim : {32, 64, 80}) {
    const VisionAttentionKernel kernel = kernel_of(head_dim, launcher.card);
    launcher.device->allow_shared(kernel.run, kernel.shared_bytes);
  }
}

void vision_attention(const VisionAttention& attention, const Launcher& launcher) {
  const int queries = attention.query_end - attention.query_begin;
  if (queries <= 0) return;
  const VisionAttentionKernel kernel = kernel_of(attention.head_dim, launcher.card);
  launch(kernel.run, launcher.in_order(),
         dim3(static_cast<unsigned>((queries + kVisionQueries - 1) / kVisionQueries),
              static_cast<unsigned>(attention.heads)),
         kThreads, static_cast<size_t>(kernel.shared_bytes), attention);
}

}  // namespace nibble::cuda
