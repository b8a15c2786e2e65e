// The context that every block of this backend works with. Blocks are free functions, one file
// each, named as in the other backends; CpuBackend (cpu_backend.cc) only forwards to them.
#pragma once

#include <vector>

#include "backend/cpu/cpu_weights.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/pools.h"
#include "backend/cpu/workspace.h"
#include "base/thread_pool.h"
#include "model/backend.h"
#include "model/batch.h"
#include "model/config/config.h"
#include "model/config/rope.h"

namespace nibble::cpu {

inline constexpr int kExpertsPerTokenMax = 64;
inline constexpr int kConvTapsMax = 16;

/// The place of each expert's rows in the gathered order; reused from pass to pass.
struct Routing {
  std::vector<int32_t> experts;  // [T, top_k], by rank
  std::vector<float> weights;    // [T, top_k]
  std::vector<int32_t> places;   // [T, top_k] -> gathered row
  std::vector<int32_t> begin;    // [experts + 1], first gathered row of each expert
  std::vector<int32_t> next;     // [experts + 1], scratch of the sort

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
  StateCache state = StateCache::f32;

  const LayerWeights& layer(int index) const { return weights.layers[static_cast<size_t>(index)]; }
};

/// normed = rms_norm(hidden), T rows.
void norm_hidden(const Context& context, const std::vector<float>& weight, int64_t rows);
/// A product of all rows of one matrix.
LinearCall product(const PackedLinear& weight, Matrix& x, Matrix& y, int64_t rows);

// Each reads and updates work.hidden.
void embed(const Context& context, const Batch& batch);
void attention_block(const Context& context, int layer, const Batch& batch);
void delta_net_block(const Context& context, int layer, const Batch& batch);
void moe_block(const Context& context, int layer, const Batch& batch);
void dense_mlp_block(const Context& context, int layer, const Batch& batch);
HeadOutput head(const Context& context, const Batch& batch);

}  // namespace nibble::cpu
