// The operations of the vision tower, for rows that are the patches of one or more frames in merge
// order (the four patches of a merge window are adjacent). Activations are BF16 between operations,
// the residual stream and all sums are F32. A row's result depends on its own frame alone: not on
// T, its place, other images, or how launches cut the rows.
//   Oracle: double arithmetic (checks/vision_check.cu); formulas: transformers'
//   Qwen3VLVisionModel. T patches, H the tower's width, D = H / heads.
#pragma once

#include <vector_types.h>

#include <cstdint>

#include "backend/cuda/ops/linear/prefill_gemm.h"
#include "backend/cuda/ops/vision/vision_shapes.h"
#include "backend/cuda/runtime/launcher.h"
#include "backend/cuda/weights/vision_weights.h"

namespace nibble::cuda {

/// patches [T][stride] BF16 = values[channel][level] of levels [T][3 * each] in channel order;
/// columns beyond become zero.
struct VisionLevels {
  const uint8_t* levels = nullptr;
  const float* values = nullptr;  // [3][256]
  int32_t each = 0;               // numbers of a channel in a patch
  int32_t rows = 0;
  uint16_t* patches = nullptr;
  int64_t stride = 0;
};
void vision_levels(const VisionLevels& levels, const Launcher& launcher);

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

/// turns [places][D / 4] = cosine and sine of place * 10000^(-4 i / D) for angle i.
void vision_turns(float2* turns, int32_t places, int32_t head_dim, const Launcher& launcher);

/// out [3][heads][N][padded_head(D)] BF16, in its rows from `row_begin` on, = the heads of q, k and
/// v in qkv [T][3 H] BF16, q and k rotated: columns i and i + D / 2 of a head turn by angle i, of
/// the row where i < D / 4, of the column (angle i - D / 4) beyond. Bytes moved: 12 T H. Attention
/// reads lines of 16-byte chunks that lie side by side 1.2 times as fast as the lines of qkv.
struct VisionRotate {
  const uint16_t* qkv = nullptr;
  const FramePlace* places = nullptr;
  const float2* turns = nullptr;  // of more places than any row or column of a frame
  int32_t heads = 0;
  int32_t head_dim = 0;  // a multiple of 8
  int32_t rows = 0;      // T
  uint16_t* out = nullptr;
  int64_t row_begin = 0;
  int64_t out_rows = 0;  // N
};
void vision_rotate(const VisionRotate& rotate, const Launcher& launcher);

inline constexpr int kVisionQueries = 256;  // queries of one thread block

/// out [query_end - query_begin][stride] BF16, of head h in columns h D .. (h + 1) D - 1:
/// softmax(q k^T / sqrt(D)) v, q of rows query_begin up to query_end, k and v of the rows of their
/// frame. FLOPs: 4 D for each pair of a frame's rows and head.
struct VisionAttention {
  const uint16_t* qkv = nullptr;  // [3][heads][N][padded_head(D)] as vision_rotate writes it
  int64_t rows = 0;               // N
  int32_t query_begin = 0;
  int32_t query_end = 0;
  int32_t frame_begin = 0;
  int32_t frame_end = 0;
  int32_t heads = 0;
  int32_t head_dim = 0;
  uint16_t* out = nullptr;
  int64_t stride = 0;
};
void vision_attention(const VisionAttention& attention, const Launcher& launcher);

/// y = f(x W^T + b): the output is one of those with a bias. x is BF16 in plain column order; the
/// columns of W [N][K] BF16 are in the order of packed_position() instead (vision_pack), K is
/// a multiple of 64.
void vision_gemm(const PrefillGemm& gemm, const Launcher& launcher);

/// Orders the columns of W [N][K] as vision_gemm wants them, in place; of all matrices of a tower.
void vision_pack(uint16_t* weight, int64_t rows, int32_t cols, const Launcher& launcher);
void pack_vision(const VisionWeights& tower, const Launcher& launcher);

/// to [places[r]][H] = from [r][H], F32, for T rows.
void vision_scatter(const float* from, const int32_t* places, int32_t width, int32_t rows,
                    float* to, const Launcher& launcher);

/// Loads the kernels and raises their limits of shared memory; vision_prepare() does it for all.
void prepare_vision_gemm(const Launcher& launcher);
void prepare_vision_attention(const Launcher& launcher);
void vision_prepare(const Launcher& launcher);

}  // namespace nibble::cuda
