// The operations of the vision tower, for rows that are the patches of one or more frames in merge
// order (the four patches of a merge window are adjacent). Activations are BF16 between operations,
// the residual stream and all sums are F32. A row's result depends on its own frame alone: not on
// T, its place, other images, or how launches cut the rows.
//   Oracle: double arithmetic (bench/cuda/vision_check.cu); formulas: transformers'
//   Qwen3VLVisionModel. T patches, H the tower's width, D = H / heads.
#pragma once

#include <vector_types.h>

#include <cstdint>

#include "backend/cuda/ops/linear/prefill_gemm.h"
#include "backend/cuda/runtime/launcher.h"

namespace nibble::cuda {

/// Where a patch lies in its frame, and the frame's size; all in patches.
struct FramePlace {
  int16_t row = 0;
  int16_t column = 0;
  int16_t rows = 1;
  int16_t columns = 1;
};

/// x [T][H] F32 = the position table [side * side][H] F32, interpolated bilinearly with its corners
/// on the corners of the frame.
struct VisionPositions {
  const FramePlace* places = nullptr;  // [T]
  const float* table = nullptr;
  int32_t side = 0;
  int32_t width = 0;  // H
  int32_t rows = 0;   // T
  float* x = nullptr;
};
void vision_positions(const VisionPositions& positions, const Launcher& launcher);

/// out [T][stride] BF16 = layer norm of x [T][H] F32; columns from H to the stride become zero.
/// Bytes moved: 4 T H + 2 T stride.
struct VisionNorm {
  const float* x = nullptr;
  const float* weight = nullptr;  // [H]
  const float* bias = nullptr;    // [H]
  float epsilon = 1e-6F;
  int32_t width = 0;
  int32_t rows = 0;
  uint16_t* out = nullptr;
  int64_t stride = 0;
};
void vision_norm(const VisionNorm& norm, const Launcher& launcher);

/// Columns of a head in memory: D rounded up to a multiple of 16, the added ones zero.
constexpr int32_t padded_head(int32_t head_dim) { return (head_dim + 15) / 16 * 16; }

/// turns [places][D / 4] = cosine and sine of place * 10000^(-4 i / D) for angle i.
void vision_turns(float2* turns, int32_t places, int32_t head_dim, const Launcher& launcher);

/// out [3][heads][T][padded_head(D)] BF16 = the heads of q, k and v in qkv [T][3 H] BF16, q and k
/// rotated: columns i and i + D / 2 of a head turn by angle i, of the row where i < D / 4, of the
/// column (angle i - D / 4) beyond. Bytes moved: 12 T H. Attention reads lines of 16-byte chunks
/// that lie side by side 1.2 times as fast as the lines of qkv.
struct VisionRotate {
  const uint16_t* qkv = nullptr;
  const FramePlace* places = nullptr;
  const float2* turns = nullptr;  // of more places than any row or column of a frame
  int32_t heads = 0;
  int32_t head_dim = 0;  // a multiple of 8
  int32_t rows = 0;
  uint16_t* out = nullptr;
};
void vision_rotate(const VisionRotate& rotate, const Launcher& launcher);

/// kVisionQueries rows or fewer of one frame.
struct VisionTile {
  int32_t query_begin = 0;
  int32_t query_end = 0;
  int32_t frame_begin = 0;
  int32_t frame_end = 0;
};
inline constexpr int kVisionQueries = 256;

/// out [T][stride] BF16, of head h in columns h D .. (h + 1) D - 1: softmax(q k^T / sqrt(D)) v over
/// the rows of the query's frame. FLOPs: 4 D for each pair of a frame's rows and head.
struct VisionAttention {
  const uint16_t* qkv = nullptr;  // as vision_rotate writes it
  const VisionTile* tiles = nullptr;
  int32_t tile_count = 0;
  int32_t heads = 0;
  int32_t head_dim = 0;
  int32_t rows = 0;  // T, of qkv
  uint16_t* out = nullptr;
  int64_t stride = 0;
};
void vision_attention(const VisionAttention& attention, const Launcher& launcher);

/// y = f(x W^T + b): the output is one of those with a bias. x is BF16 in plain column order; the
/// columns of W [N][K] BF16 are in the order of packed_position() instead (vision_weights.h), K is
/// a multiple of 64.
void vision_gemm(const PrefillGemm& gemm, const Launcher& launcher);

/// Loads the kernels and raises their limits of shared memory; vision_prepare() does it for all.
void prepare_vision_gemm(const Launcher& launcher);
void prepare_vision_attention(const Launcher& launcher);
void vision_prepare(const Launcher& launcher);

}  // namespace nibble::cuda
