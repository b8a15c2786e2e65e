// Attention of rows over their paged histories: norm and rotation of q and k, k and v into their
// pages, out = softmax(q k^T head_dim^-0.5) v, with an optional sigmoid gate; grouped queries.
//   Oracle: reference::attention (block_test.cc). Bytes moved: the lines of a row's history once
//   for each group of query heads, in the format of the pages. Rows: up to kAttendRowsMax a launch.
//   A history is cut into KV splits by its length alone, so a row's bits do not depend on its
//   batch. flash_prefill.h has attention of prompt rows.
#pragma once

#include "backend/cuda/batch_view.h"
#include "backend/cuda/runtime/launcher.h"
#include "backend/cuda/weights/device_weights.h"

namespace nibble::cuda {

/// A RopeView has the rotary frequencies on the device.
struct RopeView {
  const double* inverse_frequencies = nullptr;  // [pairs]
  const int32_t* axes = nullptr;                // [pairs]
  int32_t pairs = 0;
  float scale = 1.0F;
};

inline constexpr int kHeadDimMax = 256;
inline constexpr int kAttendSplitsMax = 128;  // KV splits of one row's history
inline constexpr int kAttendTokensMin = 128;  // tokens of one split, at least
inline constexpr int kAttendRowsMax = 64;     // rows of one launch: they size the partial results
/// Returns the bytes of one partial result: it has the output in F16, padded to 16 bytes, then its
/// maximum and total.
constexpr int64_t attend_partial_bytes(int64_t head_dim) { return (head_dim + 7) / 8 * 16 + 16; }

struct AttentionArgs {
  BatchView batch;
  int32_t q_heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;  // at most kHeadDimMax
  bool output_gate = false;
  const float* q = nullptr;  // [rows][q_heads * (2) * head_dim]; per head [q | gate]
  const float* k = nullptr;  // [rows][kv_heads * head_dim]
  const float* v = nullptr;
  const float* q_norm = nullptr;  // [head_dim]
  const float* k_norm = nullptr;  // [head_dim]
  float eps = 0.0F;
  RopeView rope;
  KvView kv;
  float value_scale = 1.0F;    // pages keep v / value_scale; the norms scale q and k
  bool skips_first = false;    // nobody attends to place 0, whose line is finite; rows lie after it
  int32_t splits_max = 1;      // enough for the longest row
  uint8_t* partial = nullptr;  // [kAttendRowsMax][q_heads][splits][attend_partial_bytes]
  uint16_t* out = nullptr;     // [rows][out_stride]
  int64_t out_stride = 0;
};
/// PromptAttentionArgs has the same values in BF16, as prompt arithmetic makes them; q is not
/// scaled.
struct PromptAttentionArgs {
  AttentionArgs base;     // q, k and v of it are unused
  uint16_t* q = nullptr;  // [rows][q_heads * (2) * head_dim]
  const uint16_t* k = nullptr;
  const uint16_t* v = nullptr;
};
/// Norms and rotates q (in place) and k, and stores k and v in their pages.
void attention_prepare(const PromptAttentionArgs& args, const Launcher& launcher);
/// Norms and rotates q and k, stores k and v in their pages, and computes the softmax over the
/// history, with the gate.
void attention(const AttentionArgs& args, const Launcher& launcher);
/// Does the same and rounds nothing but what pages round; `out` is in kF32Parts parts. It is slow.
void attention_f32(const AttentionArgs& args, const Launcher& launcher);
/// These are parts of attention(). The first stores k and v in their pages, where rows of this pass
/// read those of others; the second adds the partial results of the KV splits.
void attention_store(const AttentionArgs& args, const Launcher& launcher);
void attend_combine(const AttentionArgs& args, int row_begin, int rows, const Launcher& launcher);

}  // namespace nibble::cuda
