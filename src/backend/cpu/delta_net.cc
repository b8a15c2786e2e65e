// h += Wout (gated_norm(delta_rule(conv(qkv)), z)) with all projections from norm(h). model.md 2.4.
// A sequence's state is copied to its output slot first and then updated there in place; drafted
// rows run on a copy of it.
#include <algorithm>
#include <cmath>

#include "backend/cpu/context.h"
#include "backend/cpu/split.h"
#include "tensor/float_formats.h"

namespace nibble::cpu {
namespace {

constexpr float kUnitEps = 1e-6F;

/// Rows of one sequence on their way through the convolution and the recurrence: rows of the pass,
/// or saved ones that are replayed.
struct Rows {
  BatchSequence sequence;
  Matrix& raw;           // convolution inputs
  Matrix& qkv;           // its outputs
  Matrix &alpha, &beta;  // gates
  Matrix& out;
  int64_t first = 0;
  int count = 0;
  int32_t before = 0;  // slot with the state before row 0
};

/// One delta-net layer of one pass.
struct DeltaNet {
  const Context& context;
  const DeltaNetConfig& shape;
  const DeltaNetWeights& weights;
  const Batch& batch;
  int index;  // of this layer among the delta-net layers

  int history() const { return shape.conv_kernel - 1; }
  int k_rows() const { return shape.k_heads * shape.k_dim; }
  int64_t state_floats() const { return int64_t{shape.k_dim} * shape.v_dim; }

  /// Raw convolution input of row i; negative rows are its history.
  const float* input(const Rows& rows, int i) const;
  void convolve_row(const Rows& rows, int i) const;
  void make_gates(int64_t row) const;
  void convolve(const Rows& rows) const;
  void save_history(const Rows& rows, int row_count, int32_t slot) const;
  void recur(const Rows& rows, int32_t slot) const;
  /// `state` is the head's, before row 0 and then after the last.
  void run_head(const Rows& rows, int v_head, float* state) const;
  /// The next row, from `row` on, after which the state is rounded or wanted.
  int64_t stop_after(const Rows& rows, int64_t row) const;
  void round_state(float* state) const;

  void replay(const BatchSequence& sequence) const;
  void save_inputs(const BatchSequence& sequence) const;
  void run(const BatchSequence& sequence) const;
  void gate_row(int64_t row) const;
};

const float* DeltaNet::input(const Rows& rows, int i) const {
  if (i >= 0) return rows.raw.row(rows.first + i);
  return context.pools.conv_state(rows.before, index) + int64_t{history() + i} * shape.qkv_rows();
}

/// Convolution, SiLU and the unit lengths of q and k.
void DeltaNet::convolve_row(const Rows& rows, int i) const {
  const float* taps[kConvTapsMax];
  for (int j = 0; j < shape.conv_kernel; ++j) taps[j] = input(rows, i - history() + j);
  float* out = rows.qkv.row(rows.first + i);
  context.kernels.conv_silu(taps, weights.conv.data(), shape.conv_kernel, out, shape.qkv_rows());
  const auto q_scale = static_cast<float>(1.0 / std::sqrt(shape.k_dim));
  for (int h = 0; h < shape.k_heads; ++h) {
    context.kernels.l2_norm(out + h * shape.k_dim, shape.k_dim, kUnitEps, q_scale);
    context.kernels.l2_norm(out + k_rows() + h * shape.k_dim, shape.k_dim, kUnitEps, 1.0F);
  }
}

/// a -> alpha = exp(-exp(A_log) softplus(a + dt_bias)), b -> beta = sigmoid(b), in place.
void DeltaNet::make_gates(int64_t row) const {
  float* alpha = context.work.alpha.row(row);
  float* beta = context.work.beta.row(row);
  for (size_t h = 0; h < static_cast<size_t>(shape.v_heads); ++h) {
    const double x = double{alpha[h]} + weights.dt_bias[h];
    const double step = x > 20.0 ? x : std::log1p(std::exp(x));
    alpha[h] = static_cast<float>(std::exp(-weights.decay[h] * step));
    beta[h] = static_cast<float>(1.0 / (1.0 + std::exp(-double{beta[h]})));
  }
}

void DeltaNet::convolve(const Rows& rows) const {
  split(context.pool, rows.count, shape.qkv_rows() * 3, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) convolve_row(rows, static_cast<int>(i));
  });
}

/// The history after `row_count` rows. Ascending, so that it may shift in place.
void DeltaNet::save_history(const Rows& rows, int row_count, int32_t slot) const {
  float* to = context.pools.conv_state(slot, index);
  for (int j = 0; j < history(); ++j, to += shape.qkv_rows()) {
    const float* from = input(rows, row_count - history() + j);
    if (from != to) std::copy_n(from, shape.qkv_rows(), to);
  }
}

int64_t DeltaNet::stop_after(const Rows& rows, int64_t row) const {
  int64_t stop = rows.first + rows.count;
  if (context.state == StateCache::bf16)
    stop = row + state_rounding_rows(rows.sequence, static_cast<int32_t>(row - rows.first));
  if (&rows.qkv != &context.work.qkv) return stop;
  for (const StateSnapshot& snapshot : batch.snapshots)
    if (snapshot.row >= row) stop = std::min<int64_t>(stop, snapshot.row + 1);
  return stop;
}

void DeltaNet::round_state(float* state) const {
  for (int64_t i = 0; i < state_floats(); ++i) state[i] = round_to_bf16(state[i]);
}

/// The recurrence of one value head, stopping at rows whose state is rounded or wanted.
void DeltaNet::run_head(const Rows& rows, int v_head, float* state) const {
  const int k_head = v_head / (shape.v_heads / shape.k_heads);
  const bool of_pass = &rows.qkv == &context.work.qkv;
  const int64_t row_end = rows.first + rows.count;
  for (int64_t row = rows.first; row < row_end;) {
    const int64_t stop = stop_after(rows, row);
    float* qkv = rows.qkv.row(row);
    context.kernels.delta_rule({.rows = static_cast<int>(stop - row),
                                .k_dim = shape.k_dim,
                                .v_dim = shape.v_dim,
                                .q = qkv + k_head * shape.k_dim,
                                .k = qkv + k_rows() + k_head * shape.k_dim,
                                .v = qkv + 2 * k_rows() + v_head * shape.v_dim,
                                .qkv_stride = rows.qkv.stride(),
                                .alpha = rows.alpha.row(row) + v_head,
                                .beta = rows.beta.row(row) + v_head,
                                .gate_stride = rows.alpha.stride(),
                                .out = rows.out.row(row) + v_head * shape.v_dim,
                                .out_stride = rows.out.stride(),
                                .state = state});
    const auto last = static_cast<int32_t>(stop - 1 - rows.first);
    if (context.state == StateCache::bf16 && state_rounding_rows(rows.sequence, last) == 1)
      round_state(state);
    for (const StateSnapshot& snapshot : batch.snapshots)
      if (of_pass && snapshot.row + 1 == stop)
        std::copy_n(state, state_floats(), context.pools.delta_state(snapshot.slot, index, v_head));
    row = stop;
  }
}

/// All heads, from the state in rows.before to that in `slot`; -1: to nowhere.
void DeltaNet::recur(const Rows& rows, int32_t slot) const {
  Pools& pools = context.pools;
  const int64_t token_cost = state_floats() / 3;
  split(context.pool, shape.v_heads, token_cost * rows.count, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto head = static_cast<int>(i);
      const float* from = pools.delta_state(rows.before, index, head);
      float* state =
          slot < 0 ? context.work.draft_state.row(head) : pools.delta_state(slot, index, head);
      if (state != from) std::copy_n(from, state_floats(), state);
      run_head(rows, head, state);
    }
  });
}

/// Applies saved inputs: the state moves from state_in to state_out.
void DeltaNet::replay(const BatchSequence& sequence) const {
  Workspace& work = context.work;
  for (int i = 0; i < sequence.replay; ++i) {
    const float* saved = context.pools.saved_row(sequence.state_in, index, i);
    std::copy_n(saved, shape.qkv_rows(), work.replay_raw.row(i));
    std::copy_n(saved + shape.qkv_rows(), shape.v_heads, work.replay_alpha.row(i));
    std::copy_n(saved + shape.qkv_rows() + shape.v_heads, shape.v_heads, work.replay_beta.row(i));
  }
  const Rows rows{.sequence = {.arithmetic = Arithmetic::generation},
                  .raw = work.replay_raw,
                  .qkv = work.replay_qkv,
                  .alpha = work.replay_alpha,
                  .beta = work.replay_beta,
                  .out = work.replay_out,
                  .count = sequence.replay,
                  .before = sequence.state_in};
  convolve(rows);
  recur(rows, sequence.state_out);
  save_history(rows, rows.count, sequence.state_out);
}

void DeltaNet::save_inputs(const BatchSequence& sequence) const {
  Workspace& work = context.work;
  for (int i = 0; i < sequence.row_count; ++i) {
    float* to = context.pools.saved_row(sequence.state_out, index, i);
    const int64_t row = sequence.row_begin + i;
    to = std::copy_n(work.qkv_raw.row(row), shape.qkv_rows(), to);
    to = std::copy_n(work.alpha.row(row), shape.v_heads, to);
    std::copy_n(work.beta.row(row), shape.v_heads, to);
  }
}

void DeltaNet::run(const BatchSequence& sequence) const {
  Workspace& work = context.work;
  const bool drafted = sequence.write == StateWrite::replayed;
  const bool moved = sequence.replay > 0 || (drafted && sequence.state_in != sequence.state_out);
  if (moved) replay(sequence);
  const Rows rows{.sequence = sequence,
                  .raw = work.qkv_raw,
                  .qkv = work.qkv,
                  .alpha = work.alpha,
                  .beta = work.beta,
                  .out = work.delta_out,
                  .first = sequence.row_begin,
                  .count = sequence.row_count,
                  .before = moved ? sequence.state_out : sequence.state_in};
  convolve(rows);
  recur(rows, drafted ? -1 : sequence.state_out);
  if (drafted) return save_inputs(sequence);
  for (const StateSnapshot& snapshot : batch.snapshots) {
    const int i = snapshot.row - sequence.row_begin;
    if (i >= 0 && i < sequence.row_count) save_history(rows, i + 1, snapshot.slot);
  }
  save_history(rows, sequence.row_count, sequence.state_out);
}

void DeltaNet::gate_row(int64_t row) const {
  Workspace& work = context.work;
  for (int h = 0; h < shape.v_heads; ++h) {
    float* out = work.delta_out.row(row) + h * shape.v_dim;
    context.kernels.gated_norm({.x = out,
                                .w = weights.norm.data(),
                                .y = out,
                                .n = shape.v_dim,
                                .eps = context.config.rms_eps},
                               work.z.row(row) + h * shape.v_dim);
  }
}

}  // namespace

void delta_net_block(const Context& context, int layer, const Batch& batch) {
  Workspace& work = context.work;
  const LayerWeights& weights = context.layer(layer);
  const DeltaNetWeights& w = weights.delta_net;
  const DeltaNet net = {.context = context,
                        .shape = context.config.delta_net,
                        .weights = w,
                        .batch = batch,
                        .index = context.config.kind_index(layer)};
  const int64_t rows = batch.rows();
  norm_hidden(context, weights.input_norm, rows);
  const LinearCall inputs[] = {
      product(w.qkv, work.normed, work.qkv_raw, rows), product(w.z, work.normed, work.z, rows),
      product(w.b, work.normed, work.beta, rows), product(w.a, work.normed, work.alpha, rows)};
  context.linears.run(inputs);
  split(context.pool, rows, net.shape.v_heads * 200, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) net.make_gates(r);
  });
  for (const BatchSequence& sequence : batch.sequences) net.run(sequence);
  split(context.pool, rows, 3 * net.shape.z_rows(), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) net.gate_row(r);
  });
  LinearCall out = product(w.out, work.delta_out, work.hidden, rows);
  out.add = true;
  context.linears.run({&out, 1});
}

}  // namespace nibble::cpu
