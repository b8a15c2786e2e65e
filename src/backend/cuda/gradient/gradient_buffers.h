// GradientBuffers: where a layer's numbers of one pass are on the card, forward and backward. A
// mixer of one kind has the memory of the other kind's, as a layer has one of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/ops/linear/prefill_gemm.h"
#include "model/config/config.h"
#include "model/sample_passes.h"

namespace nibble::cuda {

/// F32 [rows, ...], in the order in which they are made; the gradients of numbers have their names
/// with d.
struct AttentionBuffers {
  float *projected, *q, *k_raw, *k, *v, *mixed, *gated, *log_sum;
  float *dprojected, *dq, *dk, *dv, *dk_raw, *dgated, *along;
};
struct DeltaBuffers {
  float *qkv, *convolved, *active, *z, *a, *alpha, *beta, *q, *k, *mixed, *normed, *gated, *starts;
  float *dgated, *dz, *dmixed, *dq, *dk, *dactive, *dqkv, *dalpha, *dbeta, *scratch;
};
struct MlpBuffers {
  float *gate, *up, *active, *y;  // [.., F] three times, [.., hidden]
  float *dactive, *dgate;         // the gradient of up takes the place of that of active
};
struct MoeBuffers {
  float *probabilities, *weights, *weight, *dweight, *dlogits, *shared_gate, *dshared_gate;
  int32_t *chosen, *row, *expert, *slots, *tile_count;
  ExpertTile* tiles;
  MlpBuffers experts;  // rows: those of all experts; y has the gradients of their inputs too
};

struct GradientBuffers {
  float *x, *middle, *y;  // [rows, hidden]; y: the feed-forward's input
  float* dx;
  AttentionBuffers attention;
  DeltaBuffers delta;
  MlpBuffers mlp;  // dense or shared
  MoeBuffers moe;
  double* squares;      // squared lengths of a pass
  int64_t squares_max;  // how many
  double* random;       // [rows]
  uint16_t* split;      // rows in two parts, of the product in work

  /// Bytes for passes of `limits`; with a base the places too.
  static int64_t cut(const ModelConfig& config, const PassLimits& limits, std::byte* base,
                     GradientBuffers& to);
};

/// Blocks that walk backward through heads of samples, each with scratch of its own.
inline constexpr int32_t kDeltaBlocks = 264;

}  // namespace nibble::cuda
