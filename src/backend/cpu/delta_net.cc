// h += Wout (gated_norm(delta_rule(conv(qkv)), z)) with all projections from norm(h). model.md 2.4.
// A sequence's state is copied to its output slot first and then updated there in place.
#include <algorithm>
#include <cmath>

#include "backend/cpu/context.h"
#include "backend/cpu/split.h"

namespace nibble::cpu {
namespace {

constexpr float kUnitEps = 1e-6F;

/// One delta-net layer of one pass.
struct DeltaNet {
  const Context& context;
  const DeltaNetConfig& shape;
  const DeltaNetWeights& weights;
  const Batch& batch;
  int index;  // of this layer among the delta-net layers

  int history() const { return shape.conv_kernel - 1; }
  int k_rows() const { return shape.k_heads * shape.k_dim; }

  /// Raw convolution input of row i of a sequence; negative rows are its history.
  const float* input(const BatchSequence& sequence, int i) const;
  void convolve_row(const BatchSequence& sequence, int i) const;
  void make_gates(int64_t row) const;
  void prepare(const BatchSequence& sequence) const;
  void save_inputs(const BatchSequence& sequence, int row_count, int32_t slot) const;
  void save_all_inputs() const;
  void run_head(const BatchSequence& sequence, int v_head) const;
  void gate_row(int64_t row) const;
};

const float* DeltaNet::input(const BatchSequence& sequence, int i) const {
  if (i >= 0) return context.work.qkv_raw.row(sequence.row_begin + i);
  return context.pools.conv_state(sequence.state_in, index) +
         int64_t{history() + i} * shape.qkv_rows();
}

/// Convolution, SiLU and the unit lengths of q and k.
void DeltaNet::convolve_row(const BatchSequence& sequence, int i) const {
  const float* taps[kConvTapsMax];
  for (int j = 0; j < shape.conv_kernel; ++j) taps[j] = input(sequence, i - history() + j);
  float* out = context.work.qkv.row(sequence.row_begin + i);
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

void DeltaNet::prepare(const BatchSequence& sequence) const {
  const int64_t cost = shape.qkv_rows() * 3 + shape.v_heads * 200;
  split(context.pool, sequence.row_count, cost, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      convolve_row(sequence, static_cast<int>(i));
      make_gates(sequence.row_begin + i);
    }
  });
}

/// The history after `row_count` rows. Ascending, so that it may shift in place.
void DeltaNet::save_inputs(const BatchSequence& sequence, int row_count, int32_t slot) const {
  float* to = context.pools.conv_state(slot, index);
  for (int j = 0; j < history(); ++j, to += shape.qkv_rows()) {
    const float* from = input(sequence, row_count - history() + j);
    if (from != to) std::copy_n(from, shape.qkv_rows(), to);
  }
}

void DeltaNet::save_all_inputs() const {
  for (const BatchSequence& sequence : batch.sequences) {
    for (const StateSnapshot& snapshot : batch.snapshots) {
      const int i = snapshot.row - sequence.row_begin;
      if (i >= 0 && i < sequence.row_count) save_inputs(sequence, i + 1, snapshot.slot);
    }
    save_inputs(sequence, sequence.row_count, sequence.state_out);
  }
}

/// The recurrence of one value head, stopping at rows whose state is wanted.
void DeltaNet::run_head(const BatchSequence& sequence, int v_head) const {
  Workspace& work = context.work;
  Pools& pools = context.pools;
  const int64_t state_floats = int64_t{shape.k_dim} * shape.v_dim;
  float* state = pools.delta_state(sequence.state_out, index, v_head);
  if (sequence.state_in != sequence.state_out)
    std::copy_n(pools.delta_state(sequence.state_in, index, v_head), state_floats, state);
  const int k_head = v_head / (shape.v_heads / shape.k_heads);
  const int row_end = sequence.row_begin + sequence.row_count;
  for (int row = sequence.row_begin; row < row_end;) {
    int stop = row_end;
    for (const StateSnapshot& snapshot : batch.snapshots)
      if (snapshot.row >= row) stop = std::min(stop, snapshot.row + 1);
    float* qkv = work.qkv.row(row);
    context.kernels.delta_rule({.rows = stop - row,
                                .k_dim = shape.k_dim,
                                .v_dim = shape.v_dim,
                                .q = qkv + k_head * shape.k_dim,
                                .k = qkv + k_rows() + k_head * shape.k_dim,
                                .v = qkv + 2 * k_rows() + v_head * shape.v_dim,
                                .qkv_stride = work.qkv.stride(),
                                .alpha = work.alpha.row(row) + v_head,
                                .beta = work.beta.row(row) + v_head,
                                .gate_stride = work.alpha.stride(),
                                .out = work.delta_out.row(row) + v_head * shape.v_dim,
                                .out_stride = work.delta_out.stride(),
                                .state = state});
    for (const StateSnapshot& snapshot : batch.snapshots)
      if (snapshot.row + 1 == stop)
        std::copy_n(state, state_floats, pools.delta_state(snapshot.slot, index, v_head));
    row = stop;
  }
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

void recur(const DeltaNet& net) {
  const DeltaNetConfig& shape = net.shape;
  const int64_t token_cost = int64_t{shape.k_dim} * shape.v_dim / 3;
  for (const BatchSequence& sequence : net.batch.sequences)
    split(net.context.pool, shape.v_heads, token_cost * sequence.row_count,
          [&](int64_t begin, int64_t end) {
            for (int64_t h = begin; h < end; ++h) net.run_head(sequence, static_cast<int>(h));
          });
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
  for (const BatchSequence& sequence : batch.sequences) net.prepare(sequence);
  net.save_all_inputs();
  recur(net);
  split(context.pool, rows, 3 * net.shape.z_rows(), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) net.gate_row(r);
  });
  LinearCall out = product(w.out, work.delta_out, work.hidden, rows);
  out.add = true;
  context.linears.run({&out, 1});
}

}  // namespace nibble::cpu
