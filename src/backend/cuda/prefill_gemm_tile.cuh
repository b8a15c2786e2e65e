// One block's share of a prompt GEMM: tiles of 256 weight rows x 128 tokens x 64 columns, weights
// as the left operand (dequantized in registers, so codes never touch shared memory twice), tokens
// as the right one (shared memory). The walk over (tile, K step) is flat: copies of the next tile
// run under the end of this one. Two inner loops over the same stages: wgmma (sm_90a) and mma.sync.
// Exact: an E2M1 code times an E4M3 scale has 6 significant bits, a BF16 has 8.
#pragma once

#include "backend/cuda/prefill_gemm.h"
#include "backend/cuda/prefill_ptx.cuh"

namespace nibble::cuda {

inline constexpr int kGemmThreads = 256;
inline constexpr int kTileRows = 256;
inline constexpr int kStepColumns = 64;
inline constexpr int kRasterTokens = 8;      // token tiles walked together, for the L2
inline constexpr float kNvfp4Unit = 256.0F;  // dequantized codes carry 2^-8

struct GemmArgs {
  PrefillGemm gemm;
  int32_t k_steps;
  int32_t row_tiles;
  int32_t token_tiles;    // dense
  int32_t rows_per_tile;  // of one matrix: 256, swiglu 128
  int32_t aligned;        // 16-byte copies of codes and 4-byte copies of scales are allowed
};

struct GemmTile {
  int32_t expert, begin, count, n0;
};

/// The slow copy, for rows that are not 16-byte aligned.
__device__ __noinline__ void copy_bytes(uint8_t* to, const uint8_t* from, int valid, int bytes) {
  for (int i = 0; i < bytes; ++i) to[i] = i < valid ? from[i] : 0;
}

template <WeightFormat kFormat>
struct StageShape {
  static constexpr int kChunks = kFormat == WeightFormat::nvfp4 ? 2
                                 : kFormat == WeightFormat::fp8 ? 4
                                                                : 8;  // of 16 bytes, a row
  static constexpr int kCodes = kTileTokens * 128;                    // byte offset
  static constexpr int kScales = kCodes + kTileRows * kChunks * 16;
  static constexpr int kBytes = kScales + (kFormat == WeightFormat::nvfp4 ? kTileRows * 4 : 0);
  /// Bytes of `columns` columns.
  __device__ static constexpr int bytes(int columns) {
    return kFormat == WeightFormat::nvfp4 ? columns / 2
           : kFormat == WeightFormat::fp8 ? columns
                                          : columns * 2;
  }
  __device__ static int offset(int row, int chunk) {
    if constexpr (kFormat == WeightFormat::nvfp4) return row * 32 + ((chunk ^ (row >> 2 & 1)) << 4);
    if constexpr (kFormat == WeightFormat::fp8) return row * 64 + ((chunk ^ (row >> 1 & 3)) << 4);
    return static_cast<int>(swizzled_offset(row, chunk));
  }
};

/// Stages that fit 99 KB (portable) or a Hopper block.
template <WeightFormat kFormat>
constexpr int stage_count(bool wgmma) {
  if (kFormat == WeightFormat::bf16) return wgmma ? 4 : 2;
  return wgmma ? 6 : 3;
}

template <WeightFormat kFormat, GemmOutput kOutput, bool kWgmma>
class GemmBlock {
 public:
  using Shape = StageShape<kFormat>;
  static constexpr bool kPaired = kOutput == GemmOutput::swiglu;
  static constexpr int kStages = stage_count<kFormat>(kWgmma);
  static constexpr int kDistance = kWgmma ? kStages - 2 : kStages - 1;  // steps copied ahead
  static constexpr int kM16 = kWgmma ? 2 : 4;                           // 16-row slots of a warp
  static constexpr int kN8 = kWgmma ? 16 : 8;                           // 8-token tiles of a warp
  static constexpr int kSharedBytes = kStages * (Shape::kBytes + 16);

  __device__ GemmBlock(const GemmArgs& args, uint8_t* shared)
      : args_(args),
        gemm_(args.gemm),
        shared_(shared),
        slot_tiles_(reinterpret_cast<GemmTile*>(shared + kStages * Shape::kBytes)),
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
    for (int i = 0; i < kDistance; ++i) load_next();
    for (int s = 0; s < total; s += 2) {
      step<0>();
      if (s + 1 < total) step<1>();
    }
  }

 private:
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

  // ---- copies ----

  __device__ void load_next() {
    if (load_index_ < tiles_total_) {
      if (load_step_ == 0) begin_tile();
      const int slot_offset = load_slot_ * Shape::kBytes;
      if (threadIdx.x == 0) slot_tiles_[load_slot_] = load_tile_;
      load_tokens(shared_address(shared_) + slot_offset);
      load_codes(slot_offset);
      if constexpr (kFormat == WeightFormat::nvfp4) load_scales(slot_offset + Shape::kScales);
      if (++load_step_ == args_.k_steps) {
        load_step_ = 0;
        load_index_ += static_cast<int>(gridDim.x);
      }
    }
    if (++load_slot_ == kStages) load_slot_ = 0;
    copy_async_commit();
  }

  __device__ void begin_tile() {
    load_tile_ = locate(load_index_);
    const int row0 = static_cast<int>(threadIdx.x) >> 3;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = row0 + 32 * i;
      x_unit_[i] = -1;
      if (token >= load_tile_.count) continue;
      int row = load_tile_.begin + token;
      if (gemm_.gather != nullptr) row = gemm_.gather[row];
      x_unit_[i] = static_cast<int>(row * (gemm_.x_stride >> 3));
    }
    const int64_t first_row = int64_t{load_tile_.expert} * gemm_.n + load_tile_.n0;
    codes_[0] = static_cast<const uint8_t*>(gemm_.weight.values) + first_row * row_bytes();
    if constexpr (kPaired)
      codes_[1] = static_cast<const uint8_t*>(gemm_.up.values) + first_row * row_bytes();
    if constexpr (kFormat == WeightFormat::nvfp4) {
      const bool up = kPaired && threadIdx.x >= 128;
      scales_ = static_cast<const uint8_t*>(up ? gemm_.up.scales : gemm_.weight.scales) +
                (first_row + tile_row(static_cast<int>(threadIdx.x))) * (gemm_.k / 16);
    }
  }

  __device__ int row_bytes() const { return Shape::bytes(gemm_.k); }
  /// Row of its matrix within the tile; rows 128.. of a paired stage are the up matrix.
  __device__ static int tile_row(int row) { return kPaired ? row & 127 : row; }

  __device__ void load_tokens(uint32_t to) const {
    const int chunk = static_cast<int>(threadIdx.x) & 7;
    const int row0 = static_cast<int>(threadIdx.x) >> 3;
    const int column = load_step_ * kStepColumns + chunk * 8;
    const auto* x = reinterpret_cast<const uint4*>(gemm_.x);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool valid = x_unit_[i] >= 0 && column < gemm_.k;
      const uint4* from = x + (valid ? x_unit_[i] + (column >> 3) : 0);
      copy_async_16(to + swizzled_offset(row0 + 32 * i, chunk), from, valid ? 16 : 0);
    }
  }

  __device__ void load_codes(int slot_offset) const {
    constexpr int kPassRows = kGemmThreads / Shape::kChunks;
    const int chunk = static_cast<int>(threadIdx.x) % Shape::kChunks;
    const int row0 = static_cast<int>(threadIdx.x) / Shape::kChunks;
    const int begin = Shape::bytes(load_step_ * kStepColumns) + chunk * 16;
    const int left = row_bytes() - begin;
    const int bytes = left >= 16 ? 16 : (left > 0 ? left : 0);
#pragma unroll
    for (int i = 0; i < Shape::kChunks; ++i) {
      const int row = row0 + i * kPassRows;
      const int valid = load_tile_.n0 + tile_row(row) < gemm_.n ? bytes : 0;
      const uint8_t* base = codes_[kPaired && 2 * i >= Shape::kChunks ? 1 : 0];
      const uint8_t* from = base + (valid > 0 ? tile_row(row) * row_bytes() + begin : 0);
      const int to = slot_offset + Shape::kCodes + Shape::offset(row, chunk);
      if (args_.aligned != 0)
        copy_async_16(shared_address(shared_) + to, from, valid);
      else
        copy_bytes(shared_ + to, from, valid, 16);
    }
  }

  __device__ void load_scales(int slot_offset) const {
    const int row = static_cast<int>(threadIdx.x);
    const int begin = load_step_ * 4;
    const int left = gemm_.k / 16 - begin;
    const int valid = load_tile_.n0 + tile_row(row) < gemm_.n ? (left < 4 ? left : 4) : 0;
    const uint8_t* from = valid > 0 ? scales_ + begin : codes_[0];
    if (args_.aligned != 0)
      copy_async_4(shared_address(shared_) + slot_offset + row * 4, from, valid);
    else
      copy_bytes(shared_ + slot_offset + row * 4, from, valid, 4);
  }

  // ---- weights as the left operand ----

  /// A 16-row slot: rows r and r + 8 of the fragment are two adjacent groups of eight weight rows,
  /// or, paired, the same eight features of gate and up.
  __device__ int slot_of(int i) const {
    if constexpr (kWgmma) return warp_ * 2 + i;
    return (warp_ >> 1) * 4 + i;
  }
  __device__ int stage_row(int i, int half, int r) const {
    return kPaired ? half * 128 + slot_of(i) * 8 + r : slot_of(i) * 16 + half * 8 + r;
  }

  /// Two E4M3 scales of k16 groups 2p and 2p + 1 as BF16, times 2^118.
  __device__ static uint32_t scale_pair(uint32_t word, int p) {
    constexpr uint32_t k2p119 = 0x7B007B00U;
    const uint32_t pair = __byte_perm(word, 0, p == 0 ? 0x4140 : 0x4342) << 4;  // times 2^-120
    return multiply_bf16(multiply_bf16(pair, k2p119), k2p119);
  }

  struct StepScales {
    uint32_t pair[kM16][2][2];  // nvfp4
    float block[2];             // fp8, 128 x 128
  };

  __device__ void load_step_scales(const uint8_t* stage, StepScales& scales) const {
    if constexpr (kFormat == WeightFormat::nvfp4) {
#pragma unroll
      for (int i = 0; i < kM16; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = stage_row(i, half, lane_ >> 2);
          const uint32_t word =
              *reinterpret_cast<const uint32_t*>(stage + Shape::kScales + row * 4);
          scales.pair[i][half][0] = scale_pair(word, 0);
          scales.pair[i][half][1] = scale_pair(word, 1);
        }
    }
    if constexpr (kFormat == WeightFormat::fp8) {
      if (gemm_.weight.fp8_scales != Fp8Scales::block128) return;
      const int columns = (gemm_.k + 127) / 128;
      const int rows = (gemm_.n + 127) / 128;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const PrefillWeight& w = kPaired && half == 1 ? gemm_.up : gemm_.weight;
        const int n = tile_.n0 + (kPaired ? 0 : slot_of(0) * 16);
        const int row = n < gemm_.n ? n >> 7 : 0;
        scales.block[half] = static_cast<const float*>(
            w.scales)[(int64_t{tile_.expert} * rows + row) * columns + (k_step_ >> 1)];
      }
    }
  }

  /// Fragment of slot i, columns 16 j .. 16 j + 15 of the step.
  __device__ void load_fragment(const uint8_t* stage, const StepScales& scales, int i, int j,
                                uint32_t (&a)[4]) const {
    const uint8_t* codes = stage + Shape::kCodes;
    const int q = lane_ & 3;
    if constexpr (kFormat == WeightFormat::bf16) {
      const int row = stage_row(i, lane_ >> 3 & 1, lane_ & 7);
      load_matrix_4(a, shared_address(codes + Shape::offset(row, 2 * j + (lane_ >> 4))));
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = stage_row(i, half, lane_ >> 2);
      if constexpr (kFormat == WeightFormat::nvfp4) {
        const uint2 words =
            *reinterpret_cast<const uint2*>(codes + Shape::offset(row, j >> 1) + (j & 1) * 8);
        const uint32_t scale =
            __byte_perm(scales.pair[i][half][j >> 1], 0, (j & 1) == 0 ? 0x1010 : 0x3232);
        a[half] = multiply_bf16(unpack_fp4(words.x, q), scale);
        a[2 + half] = multiply_bf16(unpack_fp4(words.y, q), scale);
      }
      if constexpr (kFormat == WeightFormat::fp8) {
        const uint8_t* chunk = codes + Shape::offset(row, j) + (q >> 1) * 4;
        a[half] = unpack_fp8(*reinterpret_cast<const uint32_t*>(chunk), q, scales.block[half]);
        a[2 + half] =
            unpack_fp8(*reinterpret_cast<const uint32_t*>(chunk + 8), q, scales.block[half]);
      }
    }
  }

  /// The two E2M1 codes of byte q as BF16, times 2^-126 (0.5 is a subnormal there).
  __device__ static uint32_t unpack_fp4(uint32_t word, int q) {
    const uint32_t y = __byte_perm(word, word >> 4, q | (q + 4) << 8) & 0x000F000FU;
    return (y * 0x1040U) & 0x81C081C0U;  // sign to bit 15, magnitude to bits 8..6
  }

  /// The two E4M3 codes 2q, 2q + 1 of a word pair's word (q >> 1).
  __device__ uint32_t unpack_fp8(uint32_t word, int q, float block_scale) const {
    constexpr uint32_t k2p120 = 0x7B807B80U;
    const uint32_t y = __byte_perm(word, 0, (q & 1) == 0 ? 0x4140 : 0x4342);
    const uint32_t bits = ((y << 4) & 0x07F007F0U) | ((y << 8) & 0x80008000U);
    const uint32_t value = multiply_bf16(bits, k2p120);
    if (gemm_.weight.fp8_scales != Fp8Scales::block128) return value;
    return pack_bf16(low_bf16(value) * block_scale, high_bf16(value) * block_scale);
  }

#include "backend/cuda/prefill_gemm_step.inl"

  const GemmArgs& args_;
  const PrefillGemm& gemm_;
  uint8_t* shared_;
  GemmTile* slot_tiles_;
  int lane_;
  int warp_;
  int tiles_total_ = 0;
  int load_index_ = 0;
  int load_step_ = 0;
  int load_slot_ = 0;
  int use_slot_ = 0;
  int k_step_ = 0;
  int x_unit_[4] = {};
  const uint8_t* codes_[kPaired ? 2 : 1];
  const uint8_t* scales_ = nullptr;
  GemmTile load_tile_ = {};
  GemmTile tile_ = {};
  float sum_[kM16][kN8 * 4];
  uint32_t fragments_[kWgmma ? 2 : 1][kM16][4][4];
};

}  // namespace nibble::cuda
