// h += mixer(norm(h)); h += feed_forward(norm(h)). The mixers; the feed-forward is
// gradient_feed_forward.cc.
#include "backend/cuda/gradient/gradient_layer.h"

#include "backend/cuda/runtime/device_memory.h"

namespace nibble::cuda {

void GradientLayer::open(const LayerWeights& weights, const LayerSources& sources) {
  weights_ = &weights;
  sources_ = &sources;
  transposed_.forget();
}

// ---- linears and norms ----

GradientNorm GradientLayer::norm(const float* weight, int64_t heads, int64_t width) const {
  return {.weight = weight,
          .eps = config_.rms_eps,
          .rows = rows_.rows,
          .heads = static_cast<int32_t>(heads),
          .width = static_cast<int32_t>(width)};
}

SplitRows GradientLayer::split_more(const float* x, int64_t rows, int64_t cols,
                                    int32_t padded) const {
  CUDA_CHECK(split_rows({.x = x,
                         .rows = static_cast<int32_t>(rows),
                         .cols = static_cast<int32_t>(cols),
                         .padded = padded},
                        at_.split, launcher_.stream));
  return {.values = at_.split, .cols = padded};
}

SplitRows GradientLayer::split(const float* x, const LinearSource& source,
                               const DeviceLinear& weight) const {
  return split_more(x, rows_.rows, source.cols, weight.cols);
}

void GradientLayer::apply(const DeviceLinear& weight, const SplitRows& x, float* y) const {
  gradient_product({.x = x, .weight = weight, .out = y, .rows = rows_.rows}, launcher_);
}

int64_t GradientLayer::input_lengths(const Linear& linear, SquaresLog& squares) const {
  return squares.lengths(linear.x, nullptr, rows_.rows, linear.source.cols);
}

/// dx [rows, K] (+)= dy W.
void GradientLayer::lead_back(const Linear& linear, const float* dy, ProductResult result,
                              float* dx) {
  const DeviceLinear weight =
      transposed_.of({.weight = linear.weight, .cols = static_cast<int32_t>(linear.source.cols)});
  gradient_product({.x = split_more(dy, rows_.rows, linear.source.rows, weight.cols),
                    .weight = weight,
                    .out = dx,
                    .result = result,
                    .rows = rows_.rows},
                   launcher_);
}

/// The same; notes |x|^2, which are at `inputs`, and |dy|^2.
void GradientLayer::back(const Linear& linear, int64_t inputs, const float* dy,
                         ProductResult result, float* dx, SquaresLog& squares) {
  squares.note({.linear = &linear.source,
                .inputs = inputs,
                .gradients = squares.lengths(dy, nullptr, rows_.rows, linear.source.rows),
                .count = rows_.rows});
  lead_back(linear, dy, result, dx);
}

// ---- attention ----

GradientAttention GradientLayer::attention_shape() const {
  return {.rows = rows_.rows,
          .q_heads = config_.attention.q_heads,
          .kv_heads = config_.attention.kv_heads,
          .head_dim = config_.attention.head_dim,
          .shared_bytes = launcher_.card.shared_bytes,
          .samples = rows_.sample_of_row};
}

/// Queries and keys of the projections, normed; or the gradients of the projections.
void GradientLayer::normed_heads(bool backward) const {
  const AttentionConfig& a = config_.attention;
  const AttentionBuffers& at = at_.attention;
  const int64_t dim = a.head_dim, stride = a.output_gate ? 2 * dim : dim;
  const int64_t q_row = a.q_heads * dim, kv_row = a.kv_heads * dim;
  const GradientNorm q = norm(weights_->attention.q_norm, a.q_heads, dim);
  const GradientNorm k = norm(weights_->attention.k_norm, a.kv_heads, dim);
  const HeadVectors q_raw{at.projected, a.q_heads * stride, stride}, k_raw{at.k_raw, kv_row, dim};
  if (!backward) {
    CUDA_CHECK(norm_forward(q, q_raw, {at.q, q_row, dim}, launcher_.stream));
    CUDA_CHECK(norm_forward(k, k_raw, {at.k, kv_row, dim}, launcher_.stream));
    return;
  }
  CUDA_CHECK(norm_backward(q, q_raw, {at.dq, q_row, dim},
                           {at.dprojected, a.q_heads * stride, stride}, launcher_.stream));
  CUDA_CHECK(
      norm_backward(k, k_raw, {at.dk, kv_row, dim}, {at.dk_raw, kv_row, dim}, launcher_.stream));
}

/// x -> middle, without the residual stream.
void GradientLayer::attention_forward() const {
  const AttentionConfig& a = config_.attention;
  const AttentionBuffers& at = at_.attention;
  const AttentionSources& from = sources_->attention;
  const AttentionWeights& w = weights_->attention;
  const GradientAttention shape = attention_shape();
  const SplitRows x = split(at_.x, from.q, w.q);
  apply(w.q, x, at.projected);
  apply(w.k, x, at.k_raw);
  apply(w.v, x, at.v);
  normed_heads(false);
  CUDA_CHECK(turn_heads(shape, rope_, a.q_heads, Turn::forward, at.q, launcher_.stream));
  CUDA_CHECK(turn_heads(shape, rope_, a.kv_heads, Turn::forward, at.k, launcher_.stream));
  float* mixed = a.output_gate ? at.mixed : at.gated;
  CUDA_CHECK(attend_forward(shape, {at.q, at.k, at.v}, mixed, at.log_sum, launcher_.stream));
  if (a.output_gate)
    CUDA_CHECK(gate_attention(shape, at.projected, at.mixed, at.gated, launcher_.stream));
  apply(w.o, split(at.gated, from.o, w.o), at_.middle);
}

/// dy, the gradient of the mixer's output -> dx.
void GradientLayer::attention_backward(const float* dy, SquaresLog& squares) {
  const AttentionConfig& a = config_.attention;
  const AttentionBuffers& at = at_.attention;
  const AttentionSources& from = sources_->attention;
  const AttentionWeights& w = weights_->attention;
  const GradientAttention shape = attention_shape();
  const Linear o{from.o, w.o, at.gated}, q{from.q, w.q, at_.x};
  back(o, input_lengths(o, squares), dy, ProductResult::stored, at.dgated, squares);
  const int64_t kv_bytes = int64_t{rows_.rows} * a.kv_heads * a.head_dim * int64_t{sizeof(float)};
  CUDA_CHECK(cudaMemsetAsync(at.dk_raw, 0, static_cast<size_t>(kv_bytes), launcher_.stream));
  if (a.output_gate) {
    CUDA_CHECK(gate_attention_back(shape, at.projected, at.mixed, at.dgated, at.dgated,
                                   at.dprojected, launcher_.stream));
  } else {
    CUDA_CHECK(cudaMemsetAsync(at.dprojected, 0,
                               static_cast<size_t>(rows_.rows * from.q.rows) * sizeof(float),
                               launcher_.stream));
  }
  CUDA_CHECK(attend_backward(shape, {at.q, at.k, at.v},
                             {.mixed = a.output_gate ? at.mixed : at.gated,
                              .log_sum = at.log_sum,
                              .dmixed = at.dgated,
                              .along = at.along,
                              .dq = at.dq,
                              .dk = at.dk,
                              .dv = at.dv},
                             launcher_.stream));
  CUDA_CHECK(turn_heads(shape, rope_, a.q_heads, Turn::back, at.dq, launcher_.stream));
  CUDA_CHECK(turn_heads(shape, rope_, a.kv_heads, Turn::back, at.dk, launcher_.stream));
  normed_heads(true);
  const int64_t inputs = input_lengths(q, squares);
  back(q, inputs, at.dprojected, ProductResult::stored, at_.dx, squares);
  back({from.k, w.k, at_.x}, inputs, at.dk_raw, ProductResult::added, at_.dx, squares);
  back({from.v, w.v, at_.x}, inputs, at.dv, ProductResult::added, at_.dx, squares);
}

// ---- delta net ----

GradientDelta GradientLayer::delta_shape() const {
  const DeltaNetConfig& d = config_.delta_net;
  return {.rows = rows_.rows,
          .k_heads = d.k_heads,
          .v_heads = d.v_heads,
          .k_dim = d.k_dim,
          .v_dim = d.v_dim,
          .taps = d.conv_kernel,
          .sample_of_row = rows_.sample_of_row,
          .samples = rows_.samples,
          .sample_count = rows_.sample_count};
}

DeltaGates GradientLayer::delta_gate_rows() const {
  return {.decay = weights_->delta_net.decay,
          .dt_bias = weights_->delta_net.dt_bias,
          .a = at_.delta.a,
          .alpha = at_.delta.alpha,
          .beta = at_.delta.beta};
}

DeltaRows GradientLayer::delta_rows() const {
  return {.q = at_.delta.q,
          .k = at_.delta.k,
          .active = at_.delta.active,
          .alpha = at_.delta.alpha,
          .beta = at_.delta.beta};
}

/// x -> middle, without the residual stream.
void GradientLayer::delta_forward_rows(float* starts) const {
  const DeltaBuffers& at = at_.delta;
  const DeltaNetSources& from = sources_->delta_net;
  const DeltaNetWeights& w = weights_->delta_net;
  const DeltaNetConfig& d = config_.delta_net;
  const GradientDelta shape = delta_shape();
  const SplitRows x = split(at_.x, from.qkv, w.qkv);
  apply(w.qkv, x, at.qkv);
  apply(w.z, x, at.z);
  apply(w.b, x, at.beta);
  apply(w.a, x, at.a);
  CUDA_CHECK(convolve_forward(shape, w.conv, at.qkv, at.convolved, at.active, launcher_.stream));
  CUDA_CHECK(unit_lengths(shape, at.active, at.q, at.k, launcher_.stream));
  CUDA_CHECK(delta_gates(shape, delta_gate_rows(), launcher_.stream));
  CUDA_CHECK(delta_forward(shape, delta_rows(), at.mixed, starts, launcher_.stream));
  const int64_t row = d.z_rows(), head = d.v_dim;
  CUDA_CHECK(norm_forward(norm(w.norm, d.v_heads, d.v_dim), {at.mixed, row, head},
                          {at.normed, row, head}, launcher_.stream));
  CUDA_CHECK(swiglu_forward(at.z, at.normed, at.gated, rows_.rows * row, launcher_.stream));
  apply(w.out, split(at.gated, from.out, w.out), at_.middle);
}

/// Makes of dgated the gradients of z, of what the convolution made, and of both gates.
void GradientLayer::delta_recurrence_back() const {
  const DeltaBuffers& at = at_.delta;
  const DeltaNetConfig& d = config_.delta_net;
  const GradientDelta shape = delta_shape();
  const int64_t row = d.z_rows(), head = d.v_dim, count = rows_.rows * row;
  CUDA_CHECK(
      swiglu_backward(at.z, at.normed, at.dgated, at.dz, at.dgated, count, launcher_.stream));
  CUDA_CHECK(
      cudaMemsetAsync(at.dmixed, 0, static_cast<size_t>(count) * sizeof(float), launcher_.stream));
  CUDA_CHECK(norm_backward(norm(weights_->delta_net.norm, d.v_heads, d.v_dim),
                           {at.mixed, row, head}, {at.dgated, row, head}, {at.dmixed, row, head},
                           launcher_.stream));
  CUDA_CHECK(delta_backward(shape, delta_rows(),
                            {.starts = at.starts,
                             .dmixed = at.dmixed,
                             .scratch = at.scratch,
                             .blocks = kDeltaBlocks,
                             .shared_bytes = launcher_.card.shared_bytes,
                             .dq = at.dq,
                             .dk = at.dk,
                             .dactive = at.dactive,
                             .dalpha = at.dalpha,
                             .dbeta = at.dbeta},
                            launcher_.stream));
  CUDA_CHECK(delta_gates_back(shape, delta_gate_rows(), at.dalpha, at.dbeta, launcher_.stream));
  CUDA_CHECK(unit_lengths_back(shape, at.active, at.dq, at.dk, at.dactive, launcher_.stream));
}

void GradientLayer::delta_backward_rows(const float* dy, SquaresLog& squares) {
  const DeltaBuffers& at = at_.delta;
  const DeltaNetSources& from = sources_->delta_net;
  const DeltaNetWeights& w = weights_->delta_net;
  const Linear out{from.out, w.out, at.gated}, qkv{from.qkv, w.qkv, at_.x};
  back(out, input_lengths(out, squares), dy, ProductResult::stored, at.dgated, squares);
  delta_recurrence_back();
  CUDA_CHECK(convolve_backward(delta_shape(), w.conv, at.convolved, at.dactive, at.dqkv,
                               launcher_.stream));
  const int64_t inputs = input_lengths(qkv, squares);
  back(qkv, inputs, at.dqkv, ProductResult::stored, at_.dx, squares);
  back({from.z, w.z, at_.x}, inputs, at.dz, ProductResult::added, at_.dx, squares);
  back({from.b, w.b, at_.x}, inputs, at.dbeta, ProductResult::added, at_.dx, squares);
  back({from.a, w.a, at_.x}, inputs, at.dalpha, ProductResult::added, at_.dx, squares);
}

// ---- the layer ----

/// h -> at_.middle, the stream after the mixer, and at_.y, its norm. `starts`: where states of the
/// delta rule are kept, or null.
void GradientLayer::mixer_forward(const GradientRows& rows, const float* h, float* starts) {
  rows_ = rows;
  const int64_t hidden = config_.hidden, count = rows.rows * hidden;
  CUDA_CHECK(norm_forward(norm(weights_->input_norm, 1, hidden), {h, hidden, 0}, {at_.x, hidden, 0},
                          launcher_.stream));
  if (sources_->attention.q.present()) {
    attention_forward();
  } else {
    delta_forward_rows(starts);
  }
  CUDA_CHECK(add_rows(h, at_.middle, count, launcher_.stream));
  CUDA_CHECK(norm_forward(norm(weights_->post_norm, 1, hidden), {at_.middle, hidden, 0},
                          {at_.y, hidden, 0}, launcher_.stream));
}

/// at_.y -> what comes before the last matrix of the feed-forward.
void GradientLayer::activations() {
  if (config_.moe) {
    moe_activations();
  } else {
    mlp_activations(sources_->dense_mlp, weights_->dense_mlp);
  }
}

void GradientLayer::forward(const GradientRows& rows, const float* h, float* out) {
  mixer_forward(rows, h, nullptr);
  activations();
  if (config_.moe) {
    moe_output(out);
  } else {
    mlp_output(sources_->dense_mlp, weights_->dense_mlp, out);
  }
  CUDA_CHECK(add_rows(at_.middle, out, rows.rows * int64_t{config_.hidden}, launcher_.stream));
}

void GradientLayer::backward(const GradientRows& rows, const float* h, float* dh,
                             SquaresLog& squares) {
  squares.begin();
  mixer_forward(rows, h, at_.delta.starts);
  squares.tell();  // the pass before, while the card has work; its experts are still known
  activations();
  const int64_t hidden = config_.hidden;
  if (config_.moe) {
    moe_backward(dh, squares);
  } else {
    dense_backward(dh, squares);
  }
  CUDA_CHECK(norm_backward(norm(weights_->post_norm, 1, hidden), {at_.middle, hidden, 0},
                           {at_.dx, hidden, 0}, {dh, hidden, 0}, launcher_.stream));
  if (sources_->attention.q.present()) {
    attention_backward(dh, squares);
  } else {
    delta_backward_rows(dh, squares);
  }
  CUDA_CHECK(norm_backward(norm(weights_->input_norm, 1, hidden), {h, hidden, 0},
                           {at_.dx, hidden, 0}, {dh, hidden, 0}, launcher_.stream));
}

}  // namespace nibble::cuda
