// The gated delta rule over prompts, 64 tokens at a time on the tensor cores (model.md 2.4.7), with
// the causal convolution, the gates, the unit lengths and the gated norm around it. Of a chunk of
// rows i, j with running sums c of log alpha:
//   A_ij = beta_i (k_i . k_j) exp(c_i - c_j), j < i     P_ij = (q_i . k_j) exp(c_i - c_j), j <= i
//   T = (I + A)^-1 diag(beta)     Vn = T (V - exp(c) (K S))     O = exp(c) (q S) + P Vn
//   S = exp(c_last) S + sum_i exp(c_last - c_i) k_i Vn_i^T
//   out = norm(O) * norm_weight * silu(z), or O where z is null
// Chunks lie at absolute positions, so a row's bits depend neither on how its prompt was cut at
// multiples of 64 nor on other sequences. The state is F32, or BF16 rounded after every chunk;
// operands are BF16, an F32 state is two BF16 terms.
//
//   convolve -> within chunks (parallel) -> along the chunks of a sequence -> gated norm
//
//   Oracle: the rule token by token in double (checks/delta_check.cu). Bytes moved: qkv
//   twice, z and out once, the state once in and out for each sequence and snapshot, the workspace
//   of a group about twice. Workspace: delta_workspace_bytes() of a group's chunks; its contents
//   are not kept. Any number of rows and sequences; a snapshot ends a chunk. out may not overlap
//   qkv, z or the workspace; a sequence may read and write one slot. delta_select.h says which
//   kernel runs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cuda/ops/linear/prefill_order.h"
#include "backend/cuda/runtime/device_slice.h"
#include "backend/cuda/runtime/launcher.h"
#include "backend/cuda/weights/device_weights.h"
#include "model/batch.h"

namespace nibble::cuda {

inline constexpr int kDeltaChunkTokens = 64;

struct DeltaShape {
  int32_t k_heads = 0;
  int32_t v_heads = 0;
  int32_t k_dim = 0;  // 32, 64 or 128
  int32_t v_dim = 0;  // 32, 64 or 128
  int32_t taps = 4;
  int32_t qkv_rows() const { return 2 * k_heads * k_dim + v_heads * v_dim; }
};

/// True if these kernels support the shape; else the recurrence goes token by token.
bool delta_chunk_supports(const DeltaShape& shape);

struct DeltaChunk {
  int32_t row_begin;  // into the batch
  int32_t rows;       // 1..64
  int32_t sequence;   // into DeltaPlan::sequences
  int32_t history;    // tokens of this pass before it; fewer than taps - 1: the slot has the rest
  int32_t snapshot;   // slot that gets the state after its last row, or -1
  int32_t next_keep;  // chunks to the next one that is last or has a snapshot
};

struct DeltaSequence {
  int32_t chunk_begin, chunk_count;
  int32_t state_in, state_out;
  int32_t first_keep;  // of its chunks, the first that is last or has a snapshot
};

/// Chunks of one sequence within a group; chunk_begin counts from the group's first. The state
/// passes from one to the next through state_out, as it is in registers between chunks.
struct DeltaRun {
  int32_t chunk_begin, chunk_count;
  int32_t state_in, state_out;
};
/// Chunks that are computed together, in one workspace.
struct DeltaGroup {
  int32_t chunk_begin, chunk_count;
  int32_t run_begin, run_count;
};
inline constexpr int32_t kDeltaGroupChunks = 32;

/// The chunks of the prompt sequences of a batch. CHECKs that a snapshot ends a chunk.
struct DeltaPlan {
  std::vector<DeltaChunk> chunks;
  std::vector<DeltaSequence> sequences;
  std::vector<DeltaRun> runs;
  std::vector<DeltaGroup> groups;
  static DeltaPlan of(const Batch& batch, int32_t group_chunks = kDeltaGroupChunks);
};
/// The most chunks, and runs, of a batch of `rows` rows and `sequences` prompt sequences.
int64_t delta_chunks_max(int64_t rows, int64_t sequences);
int64_t delta_runs_max(int64_t chunks, int64_t sequences);

/// Each row keeps three F32 numbers: the running sum of log alpha; beta, the diagonal of t; and q
/// k, that of p.
enum RowTerm : int { kLogDecay, kBeta, kOwnKey, kRowTerms };

/// The workspace of a group. All arrays are per chunk and head; rows past the end are zero. q, k, p
/// and t are images of tiles (shared_tile.cuh), v is in parts of 32 columns, [v_dim / 32, 64, 32].
struct DeltaWorkspace {
  /// The arrays for `chunks` chunks, cut one after the other.
  static DeltaWorkspace carve(const DeltaShape& shape, int64_t chunks, DeviceCarver& carver);

  uint8_t* q;   // [chunks, k_heads], unit length times k_dim^-0.5
  uint8_t* k;   // [chunks, k_heads], unit length
  uint8_t* p;   // [chunks, v_heads]: (q k^T) decay, below the diagonal
  uint8_t* t;   // [chunks, v_heads]: (I + A)^-1 diag(beta), below the diagonal
  uint16_t* v;  // [chunks, v_heads]
  float* rows;  // [chunks, v_heads, RowTerm, 64]
  uint16_t* o;  // [chunks, v_heads, 64, v_dim], before the gated norm
};

struct DeltaPrefill {
  DeltaShape shape;
  const DeltaChunk* chunks = nullptr;  // device copies of a plan
  const DeltaSequence* sequences = nullptr;
  const DeltaRun* runs = nullptr;
  std::span<const DeltaGroup> groups;  // on the host
  int32_t sequence_count = 0;

  const uint16_t* qkv = nullptr;  // [T, qkv_rows] at qkv_stride, a multiple of 4
  int64_t qkv_stride = 0;
  const float* a = nullptr;  // [T, v_heads] at gate_stride, raw projections
  const float* b = nullptr;
  int64_t gate_stride = 0;
  const float* conv_weight = nullptr;  // [qkv_rows, taps], oldest first
  const float* a_log = nullptr;        // [v_heads]
  const float* dt_bias = nullptr;      // [v_heads]

  StateView state;

  const uint16_t* z = nullptr;  // [T, v_heads * v_dim] at z_stride; null: no gated norm
  int64_t z_stride = 0;
  const float* norm_weight = nullptr;  // [v_dim]
  float eps = 1e-6F;
  uint16_t* out = nullptr;  // [T, v_heads * v_dim] at out_stride, a multiple of 4
  int64_t out_stride = 0;
  ColumnOrder order = ColumnOrder::packed;  // of out, if there is a gated norm

  void* workspace = nullptr;  // delta_workspace_bytes, 256-byte aligned
};

/// Returns the bytes of the workspace of groups of up to `chunks` chunks.
int64_t delta_workspace_bytes(const DeltaShape& shape, int64_t chunks);
/// Loads all kernels and raises their limits of shared memory. Once per device, before the first
/// launch.
void delta_chunk_prepare(const Launcher& launcher);
void delta_prefill(const DeltaPrefill& prefill, const Launcher& launcher);

}  // namespace nibble::cuda
