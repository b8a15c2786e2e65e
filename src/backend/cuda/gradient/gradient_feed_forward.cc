// SwiGLU, dense or shared, and the routed experts of a layer: y -> out, and dy -> dx.
#include "backend/cuda/gradient/gradient_layer.h"
#include "backend/cuda/runtime/device_memory.h"

namespace nibble::cuda {

/// y = the output [rows, hidden], for the input at_.y.
void GradientLayer::mlp_forward(const MlpSources& sources, const MlpWeights& weights,
                                float* y) const {
  const MlpBuffers& at = at_.mlp;
  apply({sources.gate, weights.gate, at_.y}, at.gate);
  apply({sources.up, weights.up, at_.y}, at.up);
  CUDA_CHECK(swiglu_forward(at.gate, at.up, at.active, rows_.rows * sources.gate.rows, stream_));
  apply({sources.down, weights.down, at.active}, y);
}

/// `inputs`: the places of |at_.y|^2.
void GradientLayer::mlp_backward(const MlpSources& sources, const MlpWeights& weights,
                                 int64_t inputs, const float* dy, ProductResult result,
                                 SquaresLog& squares) const {
  const MlpBuffers& at = at_.mlp;
  const Linear down{sources.down, weights.down, at.active};
  back(down, input_lengths(down, squares), dy, ProductResult::stored, at.dactive, squares);
  CUDA_CHECK(swiglu_backward(at.gate, at.up, at.dactive, at.dgate, at.dactive,
                             rows_.rows * sources.gate.rows, stream_));
  back({sources.gate, weights.gate, at_.y}, inputs, at.dgate, result, at_.dx, squares);
  back({sources.up, weights.up, at_.y}, inputs, at.dactive, ProductResult::added, at_.dx, squares);
}

// ---- experts ----

GradientRouter GradientLayer::router() const {
  const MoeConfig& moe = *config_.moe;
  return {.rows = rows_.rows,
          .experts = moe.experts,
          .top_k = moe.top_k,
          .weights = moe.renormalize ? RouterWeights::renormalised : RouterWeights::plain};
}

Assignments GradientLayer::assignments() const {
  const MoeBuffers& at = at_.moe;
  return {.count = experts_.count(),
          .row = at.row,
          .expert = at.expert,
          .weight = at.weight,
          .slots = at.slots};
}

/// A product of all assignments, with each expert's own matrix of the stack.
GradientProduct GradientLayer::expert_product(const DeviceLinear& weight, const float* x,
                                              int64_t cols, float* out) const {
  return {.x = x,
          .weight = weight,
          .cols = static_cast<int32_t>(cols),
          .out = out,
          .rows = experts_.count(),
          .tiles = at_.moe.tiles,
          .tile_count = static_cast<int32_t>(experts_.tiles.size())};
}

/// The choices are made on the card and sorted on the host.
void GradientLayer::route() {
  const MoeBuffers& at = at_.moe;
  apply({sources_->moe.router, weights_->moe.router, at_.y}, at.probabilities);
  CUDA_CHECK(choose_experts(router(), at.probabilities, at.chosen, at.weights, stream_));
  const auto count = static_cast<size_t>(rows_.rows) * static_cast<size_t>(config_.moe->top_k);
  std::vector<int32_t> chosen(count);
  std::vector<float> weights(count);
  CUDA_CHECK(cudaMemcpyAsync(chosen.data(), at.chosen, count * sizeof(int32_t),
                             cudaMemcpyDeviceToHost, stream_));
  CUDA_CHECK(cudaMemcpyAsync(weights.data(), at.weights, count * sizeof(float),
                             cudaMemcpyDeviceToHost, stream_));
  CUDA_CHECK(cudaStreamSynchronize(stream_));
  experts_ = sort_by_expert(chosen, weights, config_.moe->top_k, config_.moe->experts);
  const auto send = [&](auto* to, const auto& from) {
    CUDA_CHECK(cudaMemcpyAsync(to, from.data(), from.size() * sizeof(from[0]),
                               cudaMemcpyHostToDevice, stream_));
  };
  send(at.row, experts_.row);
  send(at.expert, experts_.expert);
  send(at.weight, experts_.weight);
  send(at.slots, experts_.slots);
  send(at.tiles, experts_.tiles);
}

void GradientLayer::moe_forward(float* out) {
  route();
  const MoeSources& from = sources_->moe;
  const MoeWeights& w = weights_->moe;
  const MlpBuffers& at = at_.moe.experts;
  const int64_t hidden = config_.hidden, width = config_.moe->expert_width;
  GradientProduct gate = expert_product(w.experts.gate, at_.y, hidden, at.gate);
  gate.gather = at_.moe.row;
  GradientProduct up = expert_product(w.experts.up, at_.y, hidden, at.up);
  up.gather = at_.moe.row;
  CUDA_CHECK(gradient_forward(gate, stream_));
  CUDA_CHECK(gradient_forward(up, stream_));
  CUDA_CHECK(swiglu_forward(at.gate, at.up, at.active, experts_.count() * width, stream_));
  CUDA_CHECK(gradient_forward(expert_product(w.experts.down, at.active, width, at.y), stream_));
  CUDA_CHECK(
      combine_experts(router(), assignments(), Weighted::yes, at.y, config_.hidden, out, stream_));
  if (config_.moe->shared_width == 0) return;
  mlp_forward(from.shared, w.shared, at_.mlp.y);
  apply({from.shared_gate, w.shared_gate, at_.y}, at_.moe.shared_gate);
  CUDA_CHECK(add_gated(at_.moe.shared_gate, at_.mlp.y, rows_.rows, config_.hidden, out, stream_));
}

/// The places are those of all assignments.
void GradientLayer::note_experts(LinearSource MlpSources::*role, int64_t inputs, int64_t gradients,
                                 SquaresLog& squares) const {
  for (size_t e = 0; e < sources_->moe.experts.size(); ++e) {
    const int32_t begin = experts_.begin[e], count = experts_.begin[e + 1] - begin;
    squares.note({.linear = &(sources_->moe.experts[e].*role),
                  .inputs = inputs + begin,
                  .gradients = gradients + begin,
                  .count = count,
                  .rows = std::span<const int32_t>(experts_.row)
                              .subspan(static_cast<size_t>(begin), static_cast<size_t>(count))});
  }
}

/// dy -> dx, of the routed experts alone, and the gradients of their weights.
void GradientLayer::experts_backward(const float* dy, SquaresLog& squares) const {
  const MlpWeights& w = weights_->moe.experts;
  const MlpBuffers& at = at_.moe.experts;
  const int32_t count = experts_.count();
  const int64_t hidden = config_.hidden, width = config_.moe->expert_width;
  CUDA_CHECK(spread_gradient(assignments(), dy, at.y, config_.hidden, at_.moe.dy, at_.moe.dweight,
                             stream_));
  note_experts(&MlpSources::down, squares.lengths(at.active, nullptr, count, width),
               squares.lengths(at_.moe.dy, nullptr, count, hidden), squares);
  CUDA_CHECK(gradient_backward(expert_product(w.down, at_.moe.dy, width, at.dactive),
                               ProductResult::stored, stream_));
  CUDA_CHECK(
      swiglu_backward(at.gate, at.up, at.dactive, at.dgate, at.dactive, count * width, stream_));
  const int64_t inputs = squares.lengths(at_.y, at_.moe.row, count, hidden);
  note_experts(&MlpSources::gate, inputs, squares.lengths(at.dgate, nullptr, count, width),
               squares);
  note_experts(&MlpSources::up, inputs, squares.lengths(at.dactive, nullptr, count, width),
               squares);
  CUDA_CHECK(gradient_backward(expert_product(w.gate, at.dgate, hidden, at.dx),
                               ProductResult::stored, stream_));
  CUDA_CHECK(gradient_backward(expert_product(w.up, at.dactive, hidden, at.dx),
                               ProductResult::added, stream_));
  CUDA_CHECK(combine_experts(router(), assignments(), Weighted::no, at.dx, config_.hidden, at_.dx,
                             stream_));
}

void GradientLayer::moe_backward(const float* dy, SquaresLog& squares) const {
  const MoeSources& from = sources_->moe;
  const MoeWeights& w = weights_->moe;
  const MoeBuffers& at = at_.moe;
  experts_backward(dy, squares);
  CUDA_CHECK(
      router_backward(router(), assignments(), at.probabilities, at.dweight, at.dlogits, stream_));
  const Linear router_linear{from.router, w.router, at_.y};
  const int64_t inputs = input_lengths(router_linear, squares);
  back(router_linear, inputs, at.dlogits, ProductResult::added, at_.dx, squares);
  if (config_.moe->shared_width == 0) return;
  CUDA_CHECK(gated_backward(at.shared_gate, at_.mlp.y, dy, rows_.rows, config_.hidden, at_.mlp.dx,
                            at.dshared_gate, stream_));
  mlp_backward(from.shared, w.shared, inputs, at_.mlp.dx, ProductResult::added, squares);
  back({from.shared_gate, w.shared_gate, at_.y}, inputs, at.dshared_gate, ProductResult::added,
       at_.dx, squares);
}

}  // namespace nibble::cuda
