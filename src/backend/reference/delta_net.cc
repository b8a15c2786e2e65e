// The recurrence as it is written down; every backend's chunked form must agree with it.
#include "backend/reference/delta_net.h"

#include <algorithm>
#include <cmath>

namespace nibble::reference {
namespace {

constexpr double kUnitEps = 1e-6;  // inside the root of the squared length, not of its mean

double softplus(double x) { return x > 20.0 ? x : std::log1p(std::exp(x)); }

/// x / sqrt(sum(x^2) + eps) * scale.
std::vector<double> unit_length(const double* x, size_t count, double scale) {
  double squares = 0.0;
  for (size_t i = 0; i < count; ++i) squares += x[i] * x[i];
  std::vector<double> out(x, x + count);
  for (double& value : out) value *= scale / std::sqrt(squares + kUnitEps);
  return out;
}

}  // namespace

Result<DeltaNet> DeltaNet::load(const Weights& weights, const DeltaNetSources& sources,
                                const ModelConfig& config, const LinearOptions& options,
                                PromptRounding rounding) {
  DeltaNet net;
  net.rounding_ = rounding;
  net.config_ = config.delta_net;
  net.qkv_ = TRY(Linear::load(weights, sources.qkv, options));
  net.z_ = TRY(Linear::load(weights, sources.z, options));
  net.b_ = TRY(Linear::load(weights, sources.b, options));
  net.a_ = TRY(Linear::load(weights, sources.a, options));
  net.out_ = TRY(Linear::load(weights, sources.out, options));
  net.conv_ = TRY(weights.load(sources.conv));
  net.a_log_ = TRY(weights.load(sources.a_log));
  net.dt_bias_ = TRY(weights.load(sources.dt_bias));
  net.norm_ = TRY(RmsNorm::load(weights, sources.norm, config));
  net.norm_.kind = NormKind::plain;  // the one norm of this family without the 1 +
  return net;
}

std::vector<float> DeltaNet::run(const Batch& batch, int layer, const std::vector<float>& x,
                                 StateSlots& slots) const {
  Projected in{.qkv = qkv_.apply(x), .z = z_.apply(x), .b = b_.apply(x), .a = a_.apply(x)};
  round_prompt_rows(rounding_, batch, in.qkv);
  round_prompt_rows(rounding_, batch, in.z);
  const auto width = static_cast<size_t>(config_.z_rows());
  std::vector<float> o(in.z.size());
  for (const auto& sequence : batch.sequences) {
    DeltaState state = slots.state(sequence.state_in, layer);
    replay(slots, layer, sequence, state);
    const DeltaState replayed = state;
    in.rounding = rounding_of(rounding_, sequence);
    for (int i = 0; i < sequence.row_count; ++i) {
      const int row = sequence.row_begin + i;
      token(in, static_cast<size_t>(row), state, &o[static_cast<size_t>(row) * width]);
      if (state_rounding_rows(sequence, i) == 1) slots.round(state);
      for (const auto& snapshot : batch.snapshots)
        if (snapshot.row == row) slots.state(snapshot.slot, layer) = state;
    }
    const bool drafted = sequence.write == StateWrite::replayed;
    slots.state(sequence.state_out, layer) = drafted ? replayed : state;
    if (drafted) save(in, sequence, slots.saved(sequence.state_out, layer));
  }
  return out_.apply(o);
}

void DeltaNet::save(const Projected& in, const BatchSequence& sequence, SavedInputs& saved) const {
  auto to = saved.begin();
  for (int i = 0; i < sequence.row_count; ++i)
    for (const auto* values : {&in.qkv, &in.b, &in.a}) {
      const auto width = values == &in.qkv ? config_.qkv_rows() : config_.v_heads;
      to = std::copy_n(values->begin() + int64_t{sequence.row_begin + i} * width, width, to);
    }
}

void DeltaNet::replay(StateSlots& slots, int layer, const BatchSequence& sequence,
                      DeltaState& state) const {
  Projected in{
      .qkv = {}, .z = std::vector<float>(static_cast<size_t>(config_.z_rows())), .b = {}, .a = {}};
  std::vector<float> unused(in.z.size());
  auto from = slots.saved(sequence.state_in, layer).begin();
  for (int i = 0; i < sequence.replay; ++i) {
    for (auto* values : {&in.qkv, &in.b, &in.a}) {
      const auto width = values == &in.qkv ? config_.qkv_rows() : config_.v_heads;
      values->assign(from, from + width);
      from += width;
    }
    token(in, 0, state, unused.data());
    slots.round(state);
  }
}

void DeltaNet::token(const Projected& in, size_t row, DeltaState& state, float* out) const {
  const auto rows = static_cast<size_t>(config_.qkv_rows());
  const std::vector<double> qkv = convolve(&in.qkv[row * rows], state);
  for (size_t v_head = 0; v_head < static_cast<size_t>(config_.v_heads); ++v_head)
    head(qkv, in, row, v_head, state, out + v_head * static_cast<size_t>(config_.v_dim));
}

std::vector<double> DeltaNet::convolve(const float* qkv, DeltaState& state) const {
  const auto rows = static_cast<size_t>(config_.qkv_rows());
  const auto kernel = static_cast<size_t>(config_.conv_kernel);
  std::vector<double> out(rows);
  for (size_t c = 0; c < rows; ++c) {
    double sum = double{conv_[c * kernel + kernel - 1]} * qkv[c];
    for (size_t j = 0; j + 1 < kernel; ++j)
      sum += double{conv_[c * kernel + j]} * state.conv[j * rows + c];
    out[c] = silu(sum);
  }
  std::copy(state.conv.begin() + static_cast<ptrdiff_t>(rows), state.conv.end(),
            state.conv.begin());
  std::copy_n(qkv, rows, state.conv.end() - static_cast<ptrdiff_t>(rows));
  return out;
}

void DeltaNet::head(const std::vector<double>& qkv, const Projected& in, size_t row, size_t v_head,
                    DeltaState& state, float* out) const {
  const auto k_dim = static_cast<size_t>(config_.k_dim);
  const auto v_dim = static_cast<size_t>(config_.v_dim);
  const auto v_heads = static_cast<size_t>(config_.v_heads);
  const size_t k_rows = static_cast<size_t>(config_.k_heads) * k_dim;
  const size_t k_head = v_head / (v_heads / static_cast<size_t>(config_.k_heads));
  const double q_scale = 1.0 / std::sqrt(static_cast<double>(k_dim));
  auto q = unit_length(&qkv[k_head * k_dim], k_dim, q_scale);
  auto k = unit_length(&qkv[k_rows + k_head * k_dim], k_dim, 1.0);
  const auto v_begin = qkv.begin() + static_cast<ptrdiff_t>(2 * k_rows + v_head * v_dim);
  std::vector<double> v(v_begin, v_begin + config_.v_dim);
  if (in.rounding == PromptRounding::bf16)
    for (std::vector<double>* values : {&q, &k, &v}) round_all(std::span(*values));
  const double beta = sigmoid(in.b[row * v_heads + v_head]);
  const double step = softplus(double{in.a[row * v_heads + v_head]} + dt_bias_[v_head]);
  const double alpha = std::exp(-std::exp(double{a_log_[v_head]}) * step);

  float* s = &state.recurrent[v_head * k_dim * v_dim];  // [k_dim, v_dim]
  std::vector<float> o(v_dim);
  for (size_t j = 0; j < v_dim; ++j) {
    double prediction = 0.0;
    for (size_t i = 0; i < k_dim; ++i) prediction += alpha * s[i * v_dim + j] * k[i];
    const double u = beta * (v[j] - prediction);
    double sum = 0.0;
    for (size_t i = 0; i < k_dim; ++i) {
      s[i * v_dim + j] = static_cast<float>(alpha * s[i * v_dim + j] + k[i] * u);
      sum += s[i * v_dim + j] * q[i];
    }
    o[j] = static_cast<float>(sum);
  }
  if (in.rounding == PromptRounding::bf16) round_all(std::span(o));
  norm_.apply(o.data(), o.data());
  const float* z = &in.z[(row * v_heads + v_head) * v_dim];
  for (size_t j = 0; j < v_dim; ++j) out[j] = static_cast<float>(o[j] * silu(z[j]));
}

}  // namespace nibble::reference
