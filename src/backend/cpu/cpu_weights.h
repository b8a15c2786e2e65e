// All weights of a model as this backend computes from them: matrices where their files are mapped,
// or in one block of memory. While the threads interleave, each has one piece of a matrix twice.
#pragma once

#include <optional>
#include <vector>

#include "backend/cpu/matrix_loader.h"
#include "backend/cpu/packed_linear.h"
#include "backend/cpu/weight_arena.h"
#include "base/thread_pool.h"
#include "model/backend.h"
#include "model/weights/weights.h"

namespace nibble::cpu {

struct AttentionWeights {
  PackedLinear q, k, v, o;
  std::vector<float> q_norm, k_norm;  // [head_dim]; times and divided by the scale of keys
  float value_scale = 1.0F;           // of pages, that is in no other weight
};

struct DeltaNetWeights {
  PackedLinear qkv, z, b, a, out;
  std::vector<float> conv;     // [taps][qkv_rows]
  std::vector<double> decay;   // [v_heads], exp(A_log)
  std::vector<float> dt_bias;  // [v_heads]
  std::vector<float> norm;     // [v_dim]
};

struct MlpWeights {
  PackedLinear gate, up, down;
};

struct MoeWeights {
  PackedLinear router;
  std::vector<MlpWeights> experts;
  MlpWeights shared;
  PackedLinear shared_gate;
};

/// Norm weights hold the 1 of a zero-centred norm already.
struct LayerWeights {
  std::vector<float> input_norm, post_norm;  // [hidden]
  AttentionWeights attention;
  DeltaNetWeights delta_net;
  MlpWeights dense_mlp;
  MoeWeights moe;
};

/// The layer that drafts.
struct MtpWeights {
  std::vector<float> embedding_norm, hidden_norm, norm;  // [hidden]
  PackedLinear joined;                                   // [hidden, 2 hidden]
  PackedLinear head;  // [draft_head_rows, hidden]; of no rows: the model's own
  LayerWeights layer;
};

struct BiasedLinear {
  PackedLinear weight;
  std::vector<float> bias;  // [rows]
};

struct LayerNormWeights {
  std::vector<float> weight, bias;  // [hidden]
};

struct VisionBlockWeights {
  LayerNormWeights norm1, norm2;
  BiasedLinear qkv, proj, fc1, fc2;
};

/// The vision tower.
struct VisionWeights {
  BiasedLinear patches;
  std::vector<float> positions;  // [table_side^2, hidden]
  std::vector<VisionBlockWeights> blocks;
  LayerNormWeights merger_norm;
  BiasedLinear merger_fc1, merger_fc2;

  /// Bytes of all but the matrices.
  int64_t vector_bytes() const;
};

struct CpuWeights {
  std::shared_ptr<MappedFiles> mapping;    // null: all matrices are in the arena
  HostWeights stored;                      // what is read in the mapping
  WeightArena arena;                       // of all other matrices, and of the factors of each
  std::optional<EmbeddingRows> embedding;  // absent when tied: then rows come from `head`
  PackedLinear head;
  std::vector<float> final_norm;
  std::vector<LayerWeights> layers;
  std::optional<MtpWeights> mtp;
  std::optional<VisionWeights> vision;

  /// Errors: no_memory, before any matrix is read; those of reading, and of
  /// PackedLinear::pack_rows.
  static Result<CpuWeights> load(const Weights& weights, const ModelConfig& config,
                                 ThreadPool& pool, const LoadLimits& limits);
  /// Divides keys by their scales and multiplies queries by them, in the weights of their norms, so
  /// that pages keep key / scale and scores stay what they are. One for each attention layer.
  void take_kv_scales(const ModelConfig& config, std::span<const KvScale> scales);
  /// All numbers of the model that it holds or reads in the mapping, in bytes.
  int64_t bytes() const;
};

}  // namespace nibble::cpu
