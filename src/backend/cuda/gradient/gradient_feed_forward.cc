// SwiGLU, dense or shared, and the routed experts of a layer: y -> out, and dy -> dx. Backward
// needs no outputs of the experts: the gradient of a weight is the product of two rows before the
// last matrix (WeighedRows).
#include "backend/cuda/gradient/gradient_layer.h"
#include "backend/cuda/runtime/device_memory.h"

namespace nibble::cuda {

/// Computes the activations, for the input at_.y.
void GradientLayer::mlp_activations(const MlpSources& sources, const MlpWeights& weights) {
  const MlpBuffers& at = at_.mlp;
  const SplitRows y = split(at_.y, sources.gate, weights.gate);
  apply(weights.gate, y, at.gate);
  apply(weights.up, y, at.up);
  CUDA_CHECK(
      swiglu_forward(at.gate, at.up, at.active, rows_.rows * sources.gate.rows, launcher_.stream));
}

/// out = the output [rows, hidden].
void GradientLayer::mlp_output(const MlpSources& sources, const MlpWeights& weights, float* out) {
  apply(weights.down, split(at_.mlp.active, sources.down, weights.down), out);
}

/// at.dactive, and the gradients of the last matrix's outputs noted: dy is that of the output, or,
/// with the gate of shared experts, that of the output times its sigmoid.
void GradientLayer::mlp_down_backward(const MlpSources& sources, const MlpWeights& weights,
                                      const WeighedRows* gate, const float* dy,
                                      SquaresLog& squares) {
  const MlpBuffers& at = at_.mlp;
  const int64_t inputs = squares.lengths(at.active, nullptr, rows_.rows, sources.down.cols);
  int64_t gradients = squares.lengths(dy, nullptr, rows_.rows, sources.down.rows);
  if (gate != nullptr) gradients = squares.weighed(*gate, gradients);
  squares.note(
      {.linear = &sources.down, .inputs = inputs, .gradients = gradients, .count = rows_.rows});
  lead_back({sources.down, weights.down, at.active}, dy, ProductResult::stored, at.dactive);
  if (gate != nullptr)
    CUDA_CHECK(
        weigh_backward(*gate, at.active, at.dactive, at_.moe.dshared_gate, launcher_.stream));
}

/// dx (+)= what comes of at.dactive. `inputs`: the places of |at_.y|^2.
void GradientLayer::mlp_backward(const MlpSources& sources, const MlpWeights& weights,
                                 int64_t inputs, ProductResult result, SquaresLog& squares) {
  const MlpBuffers& at = at_.mlp;
  CUDA_CHECK(swiglu_backward(at.gate, at.up, at.dactive, at.dgate, at.dactive,
                             rows_.rows * sources.gate.rows, launcher_.stream));
  back({sources.gate, weights.gate, at_.y}, inputs, at.dgate, result, at_.dx, squares);
  back({sources.up, weights.up, at_.y}, inputs, at.dactive, ProductResult::added, at_.dx, squares);
}

void GradientLayer::dense_backward(const float* dy, SquaresLog& squares) {
  const MlpSources& sources = sources_->dense_mlp;
  const MlpWeights& weights = weights_->dense_mlp;
  mlp_down_backward(sources, weights, nullptr, dy, squares);
  const Linear gate{sources.gate, weights.gate, at_.y};
  mlp_backward(sources, weights, input_lengths(gate, squares), ProductResult::stored, squares);
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

/// out = a product of all assignments, with each expert's own matrix of the stack.
void GradientLayer::expert_product(const DeviceLinear& weight, const SplitRows& x,
                                   const int32_t* gather, ProductResult result, float* out) const {
  gradient_product({.x = x,
                    .gather = gather,
                    .weight = weight,
                    .out = out,
                    .result = result,
                    .rows = experts_.count(),
                    .tiles = at_.moe.tiles,
                    .tile_count = at_.moe.tile_count},
                   launcher_);
}

DeviceLinear GradientLayer::transposed_experts(const DeviceLinear& weight, int64_t cols) {
  return transposed_.of(
      {.weight = weight, .cols = static_cast<int32_t>(cols), .stack = config_.moe->experts});
}

/// The choices are made on the card and sorted on the host.
void GradientLayer::route() {
  const MoeBuffers& at = at_.moe;
  const auto count = static_cast<size_t>(rows_.rows) * static_cast<size_t>(config_.moe->top_k);
  std::vector<int32_t> chosen(count);
  std::vector<float> weights(count);
  CUDA_CHECK(choose_experts(router(), at.probabilities, at.chosen, at.weights, launcher_.stream));
  CUDA_CHECK(cudaMemcpyAsync(chosen.data(), at.chosen, count * sizeof(int32_t),
                             cudaMemcpyDeviceToHost, launcher_.stream));
  CUDA_CHECK(cudaMemcpyAsync(weights.data(), at.weights, count * sizeof(float),
                             cudaMemcpyDeviceToHost, launcher_.stream));
  CUDA_CHECK(cudaStreamSynchronize(launcher_.stream));
  experts_ = sort_by_expert(chosen, weights, config_.moe->top_k, config_.moe->experts);
  const auto send = [&](auto* to, const auto& from) {
    CUDA_CHECK(cudaMemcpyAsync(to, from.data(), from.size() * sizeof(from[0]),
                               cudaMemcpyHostToDevice, launcher_.stream));
  };
  send(at.row, experts_.row);
  send(at.expert, experts_.expert);
  send(at.weight, experts_.weight);
  send(at.slots, experts_.slots);
  send(at.tiles, experts_.tiles);
  tile_count_ = static_cast<int32_t>(experts_.tiles.size());
  CUDA_CHECK(cudaMemcpyAsync(at.tile_count, &tile_count_, sizeof(tile_count_),
                             cudaMemcpyHostToDevice, launcher_.stream));
}

/// Computes the activations of the experts, routed and shared.
void GradientLayer::moe_activations() {
  const MoeSources& from = sources_->moe;
  const MoeWeights& w = weights_->moe;
  const MlpBuffers& at = at_.moe.experts;
  apply(w.router, split(at_.y, from.router, w.router), at_.moe.probabilities);
  route();
  const SplitRows y = split(at_.y, from.router, w.experts.gate);
  expert_product(w.experts.gate, y, at_.moe.row, ProductResult::stored, at.gate);
  expert_product(w.experts.up, y, at_.moe.row, ProductResult::stored, at.up);
  CUDA_CHECK(swiglu_forward(at.gate, at.up, at.active,
                            int64_t{experts_.count()} * config_.moe->expert_width,
                            launcher_.stream));
  if (config_.moe->shared_width == 0) return;
  apply(w.shared_gate, split(at_.y, from.shared_gate, w.shared_gate), at_.moe.shared_gate);
  mlp_activations(from.shared, w.shared);
}

/// out [rows, hidden] of what moe_activations() left.
void GradientLayer::moe_output(float* out) {
  const MoeWeights& w = weights_->moe;
  const MlpBuffers& at = at_.moe.experts;
  const SplitRows active =
      split_more(at.active, experts_.count(), config_.moe->expert_width, w.experts.down.cols);
  expert_product(w.experts.down, active, nullptr, ProductResult::stored, at.y);
  CUDA_CHECK(combine_experts(router(), assignments(), Weighted::yes, at.y, config_.hidden, out,
                             launcher_.stream));
  if (config_.moe->shared_width == 0) return;
  mlp_output(sources_->moe.shared, w.shared, at_.mlp.y);
  CUDA_CHECK(
      add_gated(at_.moe.shared_gate, at_.mlp.y, rows_.rows, config_.hidden, out, launcher_.stream));
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

/// The gradients of the activations, of which at.dactive is left, and of the weights.
void GradientLayer::experts_down_backward(const float* dy, SquaresLog& squares) {
  const DeviceLinear& down = weights_->moe.experts.down;
  const MlpBuffers& at = at_.moe.experts;
  const int32_t count = experts_.count();
  const int64_t hidden = config_.hidden, width = config_.moe->expert_width;
  const WeighedRows weighed{.count = count,
                            .width = static_cast<int32_t>(width),
                            .gather = at_.moe.row,
                            .weight = at_.moe.weight};
  const int64_t of_rows = squares.lengths(dy, nullptr, rows_.rows, hidden);
  note_experts(&MlpSources::down, squares.lengths(at.active, nullptr, count, width),
               squares.weighed(weighed, of_rows), squares);
  const DeviceLinear back = transposed_experts(down, width);
  expert_product(back, split_more(dy, rows_.rows, hidden, back.cols), at_.moe.row,
                 ProductResult::stored, at.dactive);
  CUDA_CHECK(weigh_backward(weighed, at.active, at.dactive, at_.moe.dweight, launcher_.stream));
}

/// dy -> dx, of the routed experts alone, and the gradients of their weights.
void GradientLayer::experts_backward(const float* dy, SquaresLog& squares) {
  experts_down_backward(dy, squares);
  const MlpWeights& w = weights_->moe.experts;
  const MlpBuffers& at = at_.moe.experts;
  const int32_t count = experts_.count();
  const int64_t hidden = config_.hidden, width = config_.moe->expert_width;
  CUDA_CHECK(swiglu_backward(at.gate, at.up, at.dactive, at.dgate, at.dactive, count * width,
                             launcher_.stream));
  const int64_t inputs = squares.lengths(at_.y, at_.moe.row, count, hidden);
  note_experts(&MlpSources::gate, inputs, squares.lengths(at.dgate, nullptr, count, width),
               squares);
  note_experts(&MlpSources::up, inputs, squares.lengths(at.dactive, nullptr, count, width),
               squares);
  const DeviceLinear gate = transposed_experts(w.gate, hidden);
  const DeviceLinear up = transposed_experts(w.up, hidden);
  expert_product(gate, split_more(at.dgate, count, width, gate.cols), nullptr,
                 ProductResult::stored, at.y);
  expert_product(up, split_more(at.dactive, count, width, up.cols), nullptr, ProductResult::added,
                 at.y);
  CUDA_CHECK(combine_experts(router(), assignments(), Weighted::no, at.y, config_.hidden, at_.dx,
                             launcher_.stream));
}

void GradientLayer::moe_backward(const float* dy, SquaresLog& squares) {
  const MoeSources& from = sources_->moe;
  const MoeWeights& w = weights_->moe;
  const MoeBuffers& at = at_.moe;
  experts_backward(dy, squares);
  CUDA_CHECK(router_backward(router(), assignments(), at.probabilities, at.dweight, at.dlogits,
                             launcher_.stream));
  const Linear router_linear{from.router, w.router, at_.y};
  const int64_t inputs = input_lengths(router_linear, squares);
  back(router_linear, inputs, at.dlogits, ProductResult::added, at_.dx, squares);
  if (config_.moe->shared_width == 0) return;
  const WeighedRows gate{.count = rows_.rows,
                         .width = static_cast<int32_t>(from.shared.gate.rows),
                         .weight = at.shared_gate,
                         .kind = WeighedRows::Kind::sigmoid};
  mlp_down_backward(from.shared, w.shared, &gate, dy, squares);
  mlp_backward(from.shared, w.shared, inputs, ProductResult::added, squares);
  back({from.shared_gate, w.shared_gate, at_.y}, inputs, at.dshared_gate, ProductResult::added,
       at_.dx, squares);
}

}  // namespace nibble::cuda
