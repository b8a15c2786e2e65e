// One walk places the buffers and counts their bytes.
#include "backend/cuda/gradient/gradient_buffers.h"

#include <algorithm>

#include "backend/cuda/ops/gradient/gradient_delta.h"

namespace nibble::cuda {
namespace {

class Cutter {
 public:
  explicit Cutter(std::byte* base) : base_(base) {}

  template <typename T>
  void take(T*& to, int64_t count) {
    to = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += (count * int64_t{sizeof(T)} + 255) / 256 * 256;
  }
  template <typename T>
  void take_all(std::initializer_list<T**> all, int64_t count) {
    for (T** one : all) take(*one, count);
  }
  int64_t used() const { return used_; }
  void go_back(int64_t used) { used_ = used; }

 private:
  std::byte* base_;
  int64_t used_ = 0;
};

void cut_attention(const AttentionConfig& a, int64_t rows, Cutter& cutter, AttentionBuffers& to) {
  const int64_t q = rows * a.q_heads * a.head_dim, kv = rows * a.kv_heads * a.head_dim;
  const int64_t projected = a.output_gate ? 2 * q : q;
  cutter.take_all({&to.projected, &to.dprojected}, projected);
  cutter.take_all({&to.q, &to.mixed, &to.gated, &to.dq, &to.dgated}, q);
  cutter.take_all({&to.k_raw, &to.k, &to.v, &to.dk, &to.dv, &to.dk_raw}, kv);
  cutter.take_all({&to.log_sum, &to.along}, rows * a.q_heads);
}

void cut_delta(const DeltaNetConfig& d, const PassLimits& limits, Cutter& cutter,
               DeltaBuffers& to) {
  const int64_t rows = limits.rows, z = rows * d.z_rows();
  const int64_t state = d.v_heads * delta_state_floats(d.v_dim);
  cutter.take_all({&to.qkv, &to.convolved, &to.active, &to.dactive, &to.dqkv}, rows * d.qkv_rows());
  cutter.take_all({&to.z, &to.mixed, &to.normed, &to.gated, &to.dgated, &to.dz, &to.dmixed}, z);
  cutter.take_all({&to.a, &to.alpha, &to.beta, &to.dalpha, &to.dbeta}, rows * d.v_heads);
  cutter.take_all({&to.q, &to.k}, rows * d.k_heads * d.k_dim);
  cutter.take_all({&to.dq, &to.dk}, rows * d.v_heads * d.k_dim);
  cutter.take(to.starts, (rows / kGradientChunk + limits.sequences) * state);
  cutter.take(to.scratch, kDeltaBlocks * delta_scratch_floats(d.v_dim));
}

void cut_mlp(int64_t rows, int64_t width, int64_t hidden, Cutter& cutter, MlpBuffers& to) {
  cutter.take_all({&to.gate, &to.up, &to.active, &to.dactive, &to.dgate}, rows * width);
  cutter.take(to.y, rows * hidden);
}

void cut_moe(const MoeConfig& m, int64_t rows, int64_t hidden, Cutter& cutter, MoeBuffers& to) {
  const int64_t assignments = rows * m.top_k;
  cutter.take_all({&to.probabilities, &to.dlogits}, rows * m.experts);
  cutter.take_all({&to.weights, &to.weight, &to.dweight}, assignments);
  cutter.take_all({&to.chosen, &to.row, &to.expert, &to.slots}, assignments);
  cutter.take_all({&to.shared_gate, &to.dshared_gate}, rows);
  cutter.take(to.tiles, assignments / kTileTokens + m.experts);
  cutter.take(to.tile_count, 1);
  cut_mlp(assignments, m.expert_width, hidden, cutter, to.experts);
}

/// Numbers of the rows that a layer multiplies at once, each in two parts.
int64_t split_numbers(const ModelConfig& config, int64_t rows) {
  const AttentionConfig& a = config.attention;
  const DeltaNetConfig& d = config.delta_net;
  const int64_t projected = int64_t{2} * a.q_heads * a.head_dim;
  int64_t width = std::max<int64_t>({config.hidden, projected, d.qkv_rows(), d.z_rows()});
  if (!config.moe) return 2 * rows * padded_columns(std::max<int64_t>(width, config.dense_width));
  width = std::max<int64_t>({width, config.moe->shared_width, config.moe->experts});
  return 2 * rows *
         std::max(padded_columns(width),
                  config.moe->top_k * padded_columns(config.moe->expert_width));
}

}  // namespace

int64_t GradientBuffers::cut(const ModelConfig& config, const PassLimits& limits, std::byte* base,
                             GradientBuffers& to) {
  constexpr int64_t kPerRow = 24, kPerAssignment = 5;  // more than the linears of any layer
  const int64_t rows = limits.rows, hidden = config.hidden;
  Cutter cutter(base);
  cutter.take_all({&to.x, &to.middle, &to.y, &to.dx}, rows * hidden);
  to.squares_max = rows * (kPerRow + (config.moe ? kPerAssignment * config.moe->top_k : 0));
  cutter.take(to.squares, to.squares_max);
  cutter.take(to.random, rows);
  cutter.take(to.split, split_numbers(config, rows));
  const int64_t width = config.moe ? config.moe->shared_width : config.dense_width;
  cut_mlp(rows, width, hidden, cutter, to.mlp);
  if (config.moe) cut_moe(*config.moe, rows, hidden, cutter, to.moe);
  const int64_t mixer = cutter.used();
  cut_attention(config.attention, rows, cutter, to.attention);
  const int64_t end = cutter.used();
  cutter.go_back(mixer);
  cut_delta(config.delta_net, limits, cutter, to.delta);
  return std::max(end, cutter.used());
}

}  // namespace nibble::cuda
