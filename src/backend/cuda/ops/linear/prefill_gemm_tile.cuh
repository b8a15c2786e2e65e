// One block's share of a prompt GEMM: tiles of 256 (or 192) weight rows x 128 tokens x 64
// columns, weights
// as the left operand (dequantized in registers), tokens as the right one (shared memory). The walk
// over (tile, K step) is flat: copies of the next tile run under the end of this one. Two inner
// loops over the same stages: wgmma (sm_90a) and mma.sync.
// Exact: an E2M1 code times an E4M3 scale has 6 significant bits, a BF16 has 8.
// Lines of a stage that no copy fills hold stale bits; they reach only outputs nobody stores.
#pragma once

#include "backend/cuda/ops/linear/prefill_gemm_select.h"
#include "backend/cuda/ptx/bf16.cuh"
#include "backend/cuda/ptx/shared_tile.cuh"
#include "backend/cuda/ptx/wgmma.cuh"
#include "backend/cuda/weights/code_words.h"

namespace nibble::cuda {

inline constexpr int kRasterTokens = 8;      // token tiles walked together, for the L2
inline constexpr float kNvfp4Unit = 256.0F;  // dequantized codes carry 2^-8

struct GemmArgs {
  PrefillGemm gemm;
  int32_t k_steps;  // of all parts of x
  int32_t row_tiles;
  int32_t token_tiles;    // dense
  int32_t rows_per_tile;  // rows of one matrix in a tile; for swiglu half of them
};

struct GemmTile {
  int32_t expert, begin, count, n0;
};

template <Format kFormat, int kRows>
struct StageShape {
  static constexpr int kChunks = gemm_chunks(kFormat);  // parts of 16 bytes in a row
  static constexpr int kWords = kChunks;            // words of a lane in a row, 16 columns in all
  static constexpr int kCodes = kTileTokens * 128;  // byte offset
  static constexpr int kScales = kCodes + kRows * kChunks * 16;
  static constexpr int kBytes = gemm_stage_bytes(kFormat, kRows);
  /// The byte of chunk `chunk` of row `row`, past kCodes; conflict-free for loads by lanes (row,
  /// q).
  __device__ static int offset(int row, int chunk) {
    if constexpr (kFormat == Format::nvfp4) return row * 32 + ((chunk ^ (row >> 2 & 1)) << 4);
    if constexpr (kFormat == Format::fp8) return row * 64 + ((chunk ^ (row >> 1 & 3)) << 4);
    return static_cast<int>(swizzled_offset(row, chunk));
  }
};

/// kBlocks: FP8 with a scale for every 128 x 128.
template <Format kFormat, GemmOutput kOutput, bool kWgmma, bool kBlocks>
class GemmBlock {
 public:
  static constexpr bool kPaired = kOutput == GemmOutput::swiglu;
  static constexpr int kParts = takes_sums(kOutput) ? 2 : 1;  // of x, which meet the same columns
  static constexpr bool kAdds = kOutput == GemmOutput::add || kOutput == GemmOutput::added_of_sums;
  static constexpr auto kMatrix =
      kWgmma ? PrefillGemmPlan::Matrix::wgmma : PrefillGemmPlan::Matrix::mma_sync;
  static constexpr int kTileRows = gemm_tile_rows(kOutput, kMatrix);
  using Shape = StageShape<kFormat, kTileRows>;
  static constexpr int kStages = gemm_stages(kFormat, kMatrix, kTileRows);
  /// The warpgroups, one for 64 rows, hide each other's dequantization: a wgmma that reads
  /// registers holds its warp.
  static constexpr int kThreads = kWgmma ? 2 * kTileRows : 256;
  static constexpr int kDistance = kWgmma ? kStages - 2 : kStages - 1;  // steps copied ahead
  static constexpr int kM16 = kWgmma ? 1 : 4;                           // 16-row slots of a warp
  static constexpr int kN8 = kWgmma ? 16 : 8;                           // 8-token tiles of a warp

  __device__ GemmBlock(const GemmArgs& args, uint8_t* shared)
      : args_(args),
        gemm_(args.gemm),
        shared_(shared),
        lane_(static_cast<int>(threadIdx.x) & 31),
        warp_(static_cast<int>(threadIdx.x) >> 5) {}

  __device__ void run() {
    const int token_tiles = gemm_.tiles != nullptr ? *gemm_.tile_count : args_.token_tiles;
    const int tiles = token_tiles * args_.row_tiles;
    const int first = static_cast<int>(blockIdx.x);
    const int stride = static_cast<int>(gridDim.x);
    if (first >= tiles) return;
    tiles_total_ = tiles;
    const int total = ((tiles - first + stride - 1) / stride) * args_.k_steps;
    load_index_ = first;
    use_index_ = first;
    next_tile_ = locate(first);
    if constexpr (kWgmma) init_barriers();
#pragma unroll 1
    for (int i = 0; i < kDistance; ++i) load_next();
#pragma unroll 1
    for (int s = 0; s < total; ++s) step();
  }

 private:
  __device__ int rows_of_matrix() const { return gemm_.weight.rows; }
  __device__ int steps_of_matrix() const { return args_.k_steps / kParts; }
  __device__ GemmTile locate(int index) const {
    if (gemm_.tiles != nullptr) {
      const ExpertTile tile = gemm_.tiles[index / args_.row_tiles];
      return {tile.expert, tile.begin, tile.count, index % args_.row_tiles * args_.rows_per_tile};
    }
    const int group_tiles = kRasterTokens * args_.row_tiles;
    const int group = index / group_tiles;
    const int within = index % group_tiles;
    const int left = args_.token_tiles - group * kRasterTokens;
    const int wide = left < kRasterTokens ? left : kRasterTokens;
    const int begin = (group * kRasterTokens + within % wide) * kTileTokens;
    const int rest = gemm_.rows - begin;
    return {0, begin, rest < kTileTokens ? rest : kTileTokens, within / wide * args_.rows_per_tile};
  }

  // ---- copies: a thread copies the same places of every stage ----

  static constexpr int kPassRows = kThreads / Shape::kChunks;
  static constexpr int kCodePasses = kTileRows / kPassRows;
  static constexpr int kTokenPasses = (kTileTokens * 8 + kThreads - 1) / kThreads;

  __device__ void load_next() {
    if (load_index_ < tiles_total_) {
      if (load_step_ == 0) begin_tile();
      if constexpr (kWgmma) wait_empty();
      const uint32_t stage = shared_address(shared_) + load_slot_ * Shape::kBytes;
      load_tokens(stage);
      load_codes(stage + Shape::kCodes);
      if constexpr (kFormat == Format::nvfp4) {
        if ((valid_ >> 16 & 1) != 0)
          copy_async_4(stage + Shape::kScales + threadIdx.x * 4, scales_from_, 4);
        scales_from_ += 4;
      }
      if (++load_step_ == args_.k_steps) {
        load_step_ = 0;
        load_index_ += static_cast<int>(gridDim.x);
      }
      if constexpr (kWgmma) copy_async_arrive(full_barrier(load_slot_));
    }
    if (++load_slot_ == kStages) {
      load_slot_ = 0;
      load_parity_ ^= 1;
    }
    if constexpr (!kWgmma) copy_async_commit();
  }

  // Two barriers a stage: full (every thread's copies have landed) and empty (every warp has
  // multiplied). So the warpgroups drift apart: some dequantize while another multiplies.
  __device__ uint32_t full_barrier(int slot) const {
    return shared_address(shared_) + kStages * Shape::kBytes + slot * 16;
  }
  __device__ uint32_t empty_barrier(int slot) const { return full_barrier(slot) + 8; }
  __device__ void init_barriers() const {
#ifdef NIBBLE_HAS_WGMMA
    if (threadIdx.x == 0)
      for (int i = 0; i < kStages; ++i) {
        barrier_init(full_barrier(i), kThreads);
        barrier_init(empty_barrier(i), kThreads / 32);
      }
    __syncthreads();
#endif
  }
  __device__ void wait_empty() const {
#ifdef NIBBLE_HAS_WGMMA
    barrier_wait(empty_barrier(load_slot_), load_parity_ ^ 1);
#endif
  }

  /// The row of its matrix, within the tile, that goes to line `line` of a stage. Paired: lines
  /// 0..127 are gate, then up, in the order in which the packed result wants its features.
  __device__ static int tile_row(int line) { return kPaired ? packed_column(line & 127) : line; }

  __device__ void begin_tile() {
    const GemmTile tile = locate(load_index_);
    const int thread = static_cast<int>(threadIdx.x);
    valid_ = 0;
#pragma unroll
    for (int i = 0; i < kTokenPasses; ++i) {
      const int token = (thread >> 3) + kThreads / 8 * i;
      const bool valid = token < tile.count;
      int row = tile.begin + (valid ? token : 0);
      if (gemm_.gather != nullptr) row = gemm_.gather[row];
      x_from_[i] =
          reinterpret_cast<const uint4*>(gemm_.packed_x + row * gemm_.x_stride) + (thread & 7);
      valid_ |= valid ? 1U << i : 0U;
    }
    const int64_t first_row = int64_t{tile.expert} * rows_of_matrix() + tile.n0;
    const int64_t row_bytes = steps_of_matrix() * (Shape::kChunks * 16);
    const int line = thread / Shape::kChunks;
    const int64_t at = (first_row + tile_row(line)) * row_bytes + thread % Shape::kChunks * 16;
    const bool all_up = kPaired && line >= 128;  // used where one pass copies both matrices
    codes_from_[0] = (all_up ? gemm_.up.values : gemm_.weight.values) + at;
    if constexpr (kPaired) codes_from_[1] = gemm_.up.values + at;
#pragma unroll
    for (int i = 0; i < kCodePasses; ++i)
      if (tile.n0 + tile_row(line + i * kPassRows) < rows_of_matrix()) valid_ |= 1U << (8 + i);
    if constexpr (kFormat == Format::nvfp4) {
      const bool up = kPaired && thread >= 128;
      const int scale_line = thread & (kTileRows - 1);
      scales_from_ = (up ? gemm_.up.scales : gemm_.weight.scales) +
                     (first_row + tile_row(scale_line)) * args_.k_steps * 4;
      if (thread < kTileRows && tile.n0 + tile_row(scale_line) < rows_of_matrix())
        valid_ |= 1U << 16;
    }
  }

  __device__ void load_tokens(uint32_t stage) {
    const int thread = static_cast<int>(threadIdx.x);
    const uint32_t to = stage + swizzled_offset(thread >> 3, thread & 7);
#pragma unroll
    for (int i = 0; i < kTokenPasses; ++i) {
      if ((valid_ >> i & 1) != 0) copy_async_16(to + i * kThreads * 16, x_from_[i], 16);
      x_from_[i] += 8;
    }
  }

  __device__ void load_codes(uint32_t codes) {
    const int thread = static_cast<int>(threadIdx.x);
    const uint32_t to = codes + Shape::offset(thread / Shape::kChunks, thread % Shape::kChunks);
    const int row_bytes = steps_of_matrix() * (Shape::kChunks * 16);
#pragma unroll
    for (int i = 0; i < kCodePasses; ++i) {
      // Paired: pass i begins at line i * kPassRows of 256, the second half of them up's.
      const bool second = kPaired && i > 0 && 2 * i >= kCodePasses;
      const int row = kPaired ? packed_column(i * kPassRows & 127) : i * kPassRows;
      const uint8_t* from = codes_from_[second ? 1 : 0] + row * row_bytes;
      if ((valid_ >> (8 + i) & 1) != 0) copy_async_16(to + i * kThreads * 16, from, 16);
    }
    codes_from_[0] += Shape::kChunks * 16;
    if constexpr (kParts > 1)
      if (load_step_ + 1 == steps_of_matrix()) codes_from_[0] -= row_bytes;
    if constexpr (kPaired) codes_from_[1] += Shape::kChunks * 16;
  }

#include "backend/cuda/ops/linear/prefill_gemm_operand.inl"
#include "backend/cuda/ops/linear/prefill_gemm_step.inl"
#include "backend/cuda/ops/linear/prefill_gemm_store.inl"

  const GemmArgs& args_;
  const PrefillGemm& gemm_;
  uint8_t* shared_;
  int lane_;
  int warp_;
  int tiles_total_ = 0;
  int load_index_ = 0;
  int load_step_ = 0;
  int load_slot_ = 0;
  uint32_t load_parity_ = 0;
  int use_index_ = 0;
  int use_slot_ = 0;
  uint32_t use_parity_ = 0;
  int k_step_ = 0;
  const uint4* x_from_[kTokenPasses];
  const uint8_t* codes_from_[kPaired ? 2 : 1];
  const uint8_t* scales_from_;
  uint32_t valid_ = 0;  // bits 0..3 tokens, 8..15 codes, 16 scale
  GemmTile tile_ = {};
  GemmTile next_tile_ = {};
  float sum_[kM16][kN8 * 4];
  float biases_[has_bias(kOutput) ? kM16 : 1][2];
  uint32_t fragments_[kM16][4][4];
};

}  // namespace nibble::cuda
