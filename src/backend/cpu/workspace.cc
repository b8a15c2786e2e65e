// Sizes of the workspace, in one walk that makes its buffers or only counts them.
#include "backend/cpu/workspace.h"

#include <algorithm>

#include "backend/cpu/memory_maker.h"

namespace nibble::cpu {
namespace {

constexpr int64_t kFloat = sizeof(float);

/// Rows that were a whole number of pages long would meet in the same places of the caches.
int64_t stride_of(int64_t columns) {
  const int64_t padded = padded_columns(columns);
  return padded * kFloat % 4096 == 0 ? padded + 16 : padded;
}

HeadMemory make_head(const ModelConfig& config, int64_t rows, MemoryMaker& maker) {
  return {.in = maker.matrix(rows, config.hidden),
          .logits = maker.buffer(rows * config.vocab_rows * kFloat),
          .hidden = maker.buffer(rows * config.hidden * kFloat)};
}

void make_attention(const ModelConfig& config, int64_t rows, MemoryMaker& maker, Workspace& work) {
  const AttentionConfig& a = config.attention;
  const int64_t q_columns = int64_t{a.q_heads} * a.head_dim;
  const int64_t kv_columns = int64_t{a.kv_heads} * a.head_dim;
  work.cos = maker.matrix(rows, a.rope.rotary_dims / 2);
  work.sin = maker.matrix(rows, a.rope.rotary_dims / 2);
  work.q = maker.matrix(rows, a.output_gate ? 2 * q_columns : q_columns);
  work.k = maker.matrix(rows, kv_columns);
  work.v = maker.matrix(rows, kv_columns);
  work.attention_out = maker.matrix(rows, q_columns);
}

void make_delta_net(const DeltaNetConfig& d, const WorkspaceRows& rows, MemoryMaker& maker,
                    Workspace& work) {
  work.qkv_raw = maker.matrix(rows.pass, d.qkv_rows());
  work.qkv = maker.matrix(rows.pass, d.qkv_rows());
  work.z = maker.matrix(rows.pass, d.z_rows());
  work.alpha = maker.matrix(rows.pass, d.v_heads);
  work.beta = maker.matrix(rows.pass, d.v_heads);
  work.delta_out = maker.matrix(rows.pass, d.z_rows());
  work.replay_raw = maker.matrix(rows.replay, d.qkv_rows());
  work.replay_qkv = maker.matrix(rows.replay, d.qkv_rows());
  work.replay_alpha = maker.matrix(rows.replay, d.v_heads);
  work.replay_beta = maker.matrix(rows.replay, d.v_heads);
  work.replay_out = maker.matrix(rows.replay, d.z_rows());
  if (rows.replay > 0) work.draft_state = maker.matrix(d.v_heads, int64_t{d.k_dim} * d.v_dim);
}

void make_mlp(const ModelConfig& config, int64_t rows, MemoryMaker& maker, Workspace& work) {
  int64_t width = config.dense_width;
  if (config.moe) {
    const MoeConfig& m = *config.moe;
    const int64_t routed = rows * m.top_k;
    width = m.shared_width;
    work.router = maker.matrix(rows, m.experts + 1);
    work.probabilities = maker.matrix(rows, m.experts);
    work.gathered = maker.matrix(routed, config.hidden);
    work.expert_gate = maker.matrix(routed, m.expert_width);
    work.expert_up = maker.matrix(routed, m.expert_width);
    work.expert_act = maker.matrix(routed, m.expert_width);
    work.expert_out = maker.matrix(routed, config.hidden);
    work.shared_out = maker.matrix(rows, config.hidden);
  }
  work.gate = maker.matrix(rows, width);
  work.up = maker.matrix(rows, width);
  work.act = maker.matrix(rows, width);
}

void make_all(const ModelConfig& config, const WorkspaceRows& rows, MemoryMaker& maker,
              Workspace& work) {
  work.hidden = maker.matrix(rows.pass, config.hidden);
  work.normed = maker.matrix(rows.pass, config.hidden);
  if (config.kv_layers() > 0) make_attention(config, rows.pass, maker, work);
  if (config.count(LayerKind::delta_net) > 0) make_delta_net(config.delta_net, rows, maker, work);
  make_mlp(config, rows.pass, maker, work);
  if (config.draft_layers > 0) {
    work.joined = maker.matrix(rows.pass, 2 * int64_t{config.hidden});
    work.entries = maker.matrix(rows.pass, config.hidden);
  }
  work.head = make_head(config, rows.logits, maker);
  work.bytes = maker.bytes();
}

}  // namespace

int64_t Matrix::bytes_of(int64_t rows, int64_t columns) {
  return rows * stride_of(columns) * kFloat;
}

Matrix::Matrix(int64_t rows, int64_t columns)
    : buffer_(bytes_of(rows, columns)),
      rows_(rows),
      columns_(columns),
      stride_(stride_of(columns)) {
  if (stride_ == columns_) return;
  for (int64_t r = 0; r < rows; ++r) std::fill(row(r) + columns, row(r) + stride_, 0.0F);
}

int64_t block_input_floats(const ModelConfig& config, int64_t rows) {
  const AttentionConfig& a = config.attention;
  const int64_t hidden = padded_columns(config.hidden);
  int64_t most = 4 * hidden;  // delta-net: qkv, z, b, a; and more than a joined row
  most = std::max(most, padded_columns(int64_t{a.q_heads} * a.head_dim));
  most = std::max(most, padded_columns(config.delta_net.z_rows()));
  most = std::max(most, padded_columns(config.dense_width));
  if (config.moe) {
    const MoeConfig& m = *config.moe;
    most = std::max(most, 2 * hidden * (m.top_k + 1));
    most =
        std::max(most, m.top_k * padded_columns(m.expert_width) + padded_columns(m.shared_width));
  }
  if (!config.vision) return rows * most;
  const VisionConfig& v = *config.vision;
  const int64_t widest =
      std::max({padded_columns(v.patch_values()), padded_columns(v.hidden), padded_columns(v.inner),
                padded_columns(v.merged_width()) / v.merged_patches()});
  return std::max(rows * most, kVisionPieceRows * widest);
}

WorkspaceRows workspace_rows(const PoolSizes& sizes) {
  return {.pass = sizes.rows_max,
          .logits = sizes.logit_rows > 0 ? sizes.logit_rows : sizes.rows_max,
          .replay = sizes.replay_rows};
}

Workspace::Workspace(const ModelConfig& config, const WorkspaceRows& rows) {
  MemoryMaker maker(Memory::made);
  make_all(config, rows, maker, *this);
}

int64_t Workspace::bytes_of(const ModelConfig& config, const WorkspaceRows& rows) {
  MemoryMaker maker(Memory::counted);
  Workspace counted;
  make_all(config, rows, maker, counted);
  return counted.bytes;
}

HeadMemory& Workspace::head_of(const ModelConfig& config, int64_t rows) {
  if (rows <= head.in.rows()) {
    more_head = {};
    return head;
  }
  if (rows > more_head.in.rows()) {
    more_head = {};
    MemoryMaker maker(Memory::made);
    more_head = make_head(config, rows, maker);
  }
  return more_head;
}

}  // namespace nibble::cpu
