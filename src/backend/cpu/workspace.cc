// Sizes of the workspace.
#include "backend/cpu/workspace.h"

#include <algorithm>

namespace nibble::cpu {

Matrix::Matrix(int64_t rows, int64_t columns)
    : buffer_(rows * padded_columns(columns) * int64_t{sizeof(float)}),
      rows_(rows),
      columns_(columns),
      stride_(padded_columns(columns)) {
  if (stride_ == columns_) return;
  for (int64_t r = 0; r < rows; ++r) std::fill(row(r) + columns, row(r) + stride_, 0.0F);
}

int64_t block_input_floats(const ModelConfig& config, int64_t rows) {
  const AttentionConfig& a = config.attention;
  const int64_t hidden = padded_columns(config.hidden);
  int64_t most = 4 * hidden;  // delta-net: qkv, z, b, a
  most = std::max(most, padded_columns(int64_t{a.q_heads} * a.head_dim));
  most = std::max(most, padded_columns(config.delta_net.z_rows()));
  most = std::max(most, padded_columns(config.dense_width));
  if (config.moe) {
    const MoeConfig& m = *config.moe;
    most = std::max(most, 2 * hidden * (m.top_k + 1));
    most =
        std::max(most, m.top_k * padded_columns(m.expert_width) + padded_columns(m.shared_width));
  }
  return rows * most;
}

Workspace::Workspace(const ModelConfig& config, int64_t rows, int64_t replay_rows)
    : hidden(rows, config.hidden),
      normed(rows, config.hidden),
      head_in(rows, config.hidden),
      logits(rows * config.vocab_rows * int64_t{sizeof(float)}),
      head_hidden(rows * config.hidden * int64_t{sizeof(float)}) {
  if (config.count(LayerKind::attention) > 0) {
    const AttentionConfig& a = config.attention;
    const int64_t q_columns = int64_t{a.q_heads} * a.head_dim;
    const int64_t kv_columns = int64_t{a.kv_heads} * a.head_dim;
    cos = Matrix(rows, a.rope.rotary_dims / 2);
    sin = Matrix(rows, a.rope.rotary_dims / 2);
    q = Matrix(rows, a.output_gate ? 2 * q_columns : q_columns);
    k = Matrix(rows, kv_columns);
    v = Matrix(rows, kv_columns);
    attention_out = Matrix(rows, q_columns);
  }
  if (config.count(LayerKind::delta_net) > 0) {
    const DeltaNetConfig& d = config.delta_net;
    qkv_raw = Matrix(rows, d.qkv_rows());
    qkv = Matrix(rows, d.qkv_rows());
    z = Matrix(rows, d.z_rows());
    alpha = Matrix(rows, d.v_heads);
    beta = Matrix(rows, d.v_heads);
    delta_out = Matrix(rows, d.z_rows());
    replay_raw = Matrix(replay_rows, d.qkv_rows());
    replay_qkv = Matrix(replay_rows, d.qkv_rows());
    replay_alpha = Matrix(replay_rows, d.v_heads);
    replay_beta = Matrix(replay_rows, d.v_heads);
    replay_out = Matrix(replay_rows, d.z_rows());
    if (replay_rows > 0) draft_state = Matrix(d.v_heads, int64_t{d.k_dim} * d.v_dim);
  }
  int64_t width = config.dense_width;
  if (config.moe) {
    const MoeConfig& m = *config.moe;
    const int64_t routed = rows * m.top_k;
    width = m.shared_width;
    router = Matrix(rows, m.experts + 1);
    probabilities = Matrix(rows, m.experts);
    gathered = Matrix(routed, config.hidden);
    expert_gate = Matrix(routed, m.expert_width);
    expert_up = Matrix(routed, m.expert_width);
    expert_act = Matrix(routed, m.expert_width);
    expert_out = Matrix(routed, config.hidden);
    shared_out = Matrix(rows, config.hidden);
  }
  gate = Matrix(rows, width);
  up = Matrix(rows, width);
  act = Matrix(rows, width);
}

}  // namespace nibble::cpu
