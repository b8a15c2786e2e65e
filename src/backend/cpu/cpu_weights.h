// All weights of a model in the layout of this backend, loaded role by role: while the threads
// repack, only the matrices in work are in memory twice.
#pragma once

#include <optional>
#include <vector>

#include "backend/cpu/packed_linear.h"
#include "base/thread_pool.h"
#include "model/weights/weights.h"

namespace nibble::cpu {

struct AttentionWeights {
  PackedLinear q, k, v, o;
  std::vector<float> q_norm, k_norm;  // [head_dim]
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

struct CpuWeights {
  std::optional<LinearWeight> embedding;  // absent when tied: then rows come from `head`
  PackedLinear head;
  std::vector<float> final_norm;
  std::vector<LayerWeights> layers;

  /// Errors: those of reading, and of PackedLinear::pack.
  static Result<CpuWeights> load(const Weights& weights, const ModelConfig& config,
                                 const KernelTable& kernels, ThreadPool& pool);
};

}  // namespace nibble::cpu
