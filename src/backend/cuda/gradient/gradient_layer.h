// GradientLayer: one layer on the card, forward and backward, over the whole samples of a pass.
// Oracle: gradient::LayerGradient.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "backend/cuda/gradient/expert_rows.h"
#include "backend/cuda/gradient/gradient_buffers.h"
#include "backend/cuda/gradient/squares_log.h"
#include "backend/cuda/gradient/transposed_weights.h"
#include "backend/cuda/ops/gradient/gradient_attention.h"
#include "backend/cuda/ops/gradient/gradient_delta.h"
#include "backend/cuda/ops/gradient/gradient_moe.h"
#include "backend/cuda/ops/gradient/gradient_operands.h"
#include "backend/cuda/ops/gradient/gradient_product.h"
#include "backend/cuda/ops/gradient/gradient_rows.h"
#include "backend/cuda/runtime/launcher.h"
#include "backend/cuda/weights/weight_store.h"
#include "model/config/config.h"
#include "model/weights/weights.h"

namespace nibble::cuda {

/// The rows of a pass, and where samples begin and end among them, in memory of the card.
struct GradientRows {
  int32_t rows = 0;
  const SampleOfRow* sample_of_row = nullptr;
  const DeltaSample* samples = nullptr;
  int32_t sample_count = 0;
};

class GradientLayer {
 public:
  /// All but the launcher must outlive it.
  GradientLayer(const ModelConfig& config, const GradientBuffers& buffers,
                TransposedWeights& transposed, const Launcher& launcher)
      : config_(config), at_(buffers), transposed_(transposed), launcher_(launcher) {}
  void turn_by(const GradientRope& rope) { rope_ = rope; }

  /// All must outlive the calls that follow.
  void open(const LayerWeights& weights, const LayerSources& sources);
  /// The residual stream h [rows, hidden] before the layer -> `out`, after it.
  void forward(const GradientRows& rows, const float* h, float* out);
  /// dh, the gradient of the stream after the layer, becomes that of the stream before it, h.
  /// Notes the squared lengths of all linears, and tells of those of the pass before.
  void backward(const GradientRows& rows, const float* h, float* dh, SquaresLog& squares);

 private:
  /// A linear with its input, of all rows of the pass.
  struct Linear {
    const LinearSource& source;
    const DeviceLinear& weight;
    const float* x = nullptr;
  };
  GradientNorm norm(const float* weight, int64_t heads, int64_t width) const;
  /// Rows in two parts, in memory that the next call takes again.
  SplitRows split(const float* x, const LinearSource& source, const DeviceLinear& weight) const;
  SplitRows split_more(const float* x, int64_t rows, int64_t cols, int32_t padded) const;
  void apply(const DeviceLinear& weight, const SplitRows& x, float* y) const;
  void lead_back(const Linear& linear, const float* dy, ProductResult result, float* dx);
  void back(const Linear& linear, int64_t inputs, const float* dy, ProductResult result, float* dx,
            SquaresLog& squares);
  int64_t input_lengths(const Linear& linear, SquaresLog& squares) const;

  GradientAttention attention_shape() const;
  GradientDelta delta_shape() const;
  DeltaGates delta_gate_rows() const;
  DeltaRows delta_rows() const;
  void normed_heads(bool backward) const;
  void attention_forward() const;
  void attention_backward(const float* dy, SquaresLog& squares);
  void delta_forward_rows(float* starts) const;
  void delta_recurrence_back() const;
  void delta_backward_rows(const float* dy, SquaresLog& squares);

  GradientRouter router() const;
  Assignments assignments() const;
  void expert_product(const DeviceLinear& weight, const SplitRows& x, const int32_t* gather,
                      ProductResult result, float* out) const;
  DeviceLinear transposed_experts(const DeviceLinear& weight, int64_t cols);
  void route();
  void mixer_forward(const GradientRows& rows, const float* h, float* starts);
  void activations();
  void mlp_activations(const MlpSources& sources, const MlpWeights& weights);
  void mlp_output(const MlpSources& sources, const MlpWeights& weights, float* out);
  void mlp_down_backward(const MlpSources& sources, const MlpWeights& weights,
                         const WeighedRows* gate, const float* dy, SquaresLog& squares);
  void mlp_backward(const MlpSources& sources, const MlpWeights& weights, int64_t inputs,
                    ProductResult result, SquaresLog& squares);
  void dense_backward(const float* dy, SquaresLog& squares);
  void moe_activations();
  void moe_output(float* out);
  void note_experts(LinearSource MlpSources::*role, int64_t inputs, int64_t gradients,
                    SquaresLog& squares) const;
  void experts_down_backward(const float* dy, SquaresLog& squares);
  void experts_backward(const float* dy, SquaresLog& squares);
  void moe_backward(const float* dy, SquaresLog& squares);

  const ModelConfig& config_;
  const GradientBuffers& at_;
  TransposedWeights& transposed_;
  Launcher launcher_;
  GradientRope rope_;
  const LayerWeights* weights_ = nullptr;
  const LayerSources* sources_ = nullptr;
  GradientRows rows_;
  ExpertRows experts_;
  int32_t tile_count_ = 0;
};

}  // namespace nibble::cuda
