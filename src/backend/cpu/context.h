// The context that every block of this backend works with. Blocks are free functions, one file
// each, named as in the other backends; CpuBackend (cpu_backend.cc) only forwards to them.
#pragma once

#include <vector>

#include "backend/cpu/cpu_weights.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/pools.h"
#include "backend/cpu/vision_memory.h"
#include "backend/cpu/workspace.h"
#include "base/thread_pool.h"
#include "model/backend.h"
#include "model/batch.h"
#include "model/config/config.h"
#include "model/config/rope.h"
#include "model/draft.h"

namespace nibble::cpu {

inline constexpr int kExpertsPerTokenMax = 64;
inline constexpr int kConvTapsMax = 16;

/// Router logits of one row, and room for their softmax; both [experts].
struct RouterRow {
  const float* logits;
  float* probabilities;
};

/// The place of each expert's rows in the gathered order; reused from pass to pass.
struct Routing {
  std::vector<int32_t> experts;  // [T, top_k], by rank
  std::vector<float> weights;    // [T, top_k]
  std::vector<int32_t> places;   // [T, top_k] -> gathered row
  std::vector<int32_t> sources;  // [T, top_k] gathered row -> row
  std::vector<int32_t> begin;    // [experts + 1], first gathered row of each expert
  std::vector<int32_t> next;     // [experts + 1], scratch of the sort

  /// Top-k of one row: softmax over all experts, largest first, the lowest index on ties.
  void choose(const KernelTable& kernels, const MoeConfig& moe, const RouterRow& router,
              int64_t row);
  /// Counting sort of (row, rank) by expert.
  void place(const MoeConfig& moe, int64_t rows);

  void reserve(const MoeConfig& moe, int64_t rows);
  /// Bytes that reserve() takes.
  static int64_t bytes_of(const MoeConfig& moe, int64_t rows);
  /// Bytes held now.
  int64_t bytes() const;
};

struct Context {
  const ModelConfig& config;
  const KernelTable& kernels;
  const CpuWeights& weights;
  const RopeTable& rope;
  ThreadPool& pool;
  LinearRunner& linears;
  Pools& pools;
  Workspace& work;
  Routing& routing;
  std::vector<LinearCall>& calls;  // scratch for lists of products
  VisionMemory& media;
  StateCache state = StateCache::f32;

  const LayerWeights& layer(int index) const { return weights.layers[static_cast<size_t>(index)]; }
};

/// A layer of attention: its weights, and its place in the pages.
struct AttentionLayer {
  const LayerWeights& weights;
  int kv_layer = 0;
  int first_key = 0;  // tokens before are not seen
};

/// The tokens that draft() chooses from and those it chose; reused from call to call.
struct DraftChoice {
  std::vector<uint32_t> allowed;  // a bit for each token; empty: all
  std::vector<int32_t> tokens;    // as DraftOutput
};

/// normed = rms_norm(hidden), T rows.
void norm_hidden(const Context& context, const std::vector<float>& weight, int64_t rows);
/// A product of all rows of one matrix.
LinearCall product(const PackedLinear& weight, Matrix& x, Matrix& y, int64_t rows);

/// The embeddings of a batch's rows, to the first columns of `out`, and zeros up to 16.
void embed_rows(const Context& context, const Batch& batch, Matrix& out);

// Each reads and updates work.hidden.
void embed(const Context& context, const Batch& batch);
void attention_block(const Context& context, const AttentionLayer& layer, const Batch& batch);
void delta_net_block(const Context& context, int layer, const Batch& batch);
void moe_block(const Context& context, const LayerWeights& weights, const Batch& batch);
void dense_mlp_block(const Context& context, const LayerWeights& weights, const Batch& batch);
HeadOutput head(const Context& context, const Batch& batch);
/// The product of a head with the first rows of memory.in; its logits have no padding.
LinearCall head_product(const PackedLinear& head, HeadMemory& memory, int64_t rows);

// These are of a model with a layer that drafts. keep_draft_entries reads work.hidden.
void keep_draft_entries(const Context& context, const Batch& batch);
DraftOutput draft(const Context& context, const DraftBatch& batch, DraftChoice& choice);
// These are of a model with a vision tower: VisionTower in model/backend.h says what each computes.
void embed_patches(const Context& context, const VisionPiece& piece);
void project_patches(const Context& context, int block, const VisionPiece& piece);
void attend_patches(const Context& context, int block, const VisionPiece& piece);
void merge_patches(const Context& context, const VisionPiece& piece);

/// Keys and values of the rows in work.normed, at the angles of the workspace, go to their pages.
/// Keys and values before first_key, and those of rows that are not finite, become zeros.
void keep_keys(const Context& context, const AttentionLayer& layer, const Batch& batch);

}  // namespace nibble::cpu
