// GradientLayer: one layer on the card, forward and backward, over the whole samples of a pass.
// Oracle: gradient::LayerGradient.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "backend/cuda/gradient/expert_rows.h"
#include "backend/cuda/gradient/gradient_buffers.h"
#include "backend/cuda/gradient/squares_log.h"
#include "backend/cuda/ops/gradient/gradient_attention.h"
#include "backend/cuda/ops/gradient/gradient_delta.h"
#include "backend/cuda/ops/gradient/gradient_moe.h"
#include "backend/cuda/ops/gradient/gradient_product.h"
#include "backend/cuda/ops/gradient/gradient_rows.h"
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
  GradientLayer(const ModelConfig& config, const GradientBuffers& buffers, const GradientRope& rope,
                cudaStream_t stream)
      : config_(config), at_(buffers), rope_(rope), stream_(stream) {}

  /// All must outlive the calls that follow.
  void open(const LayerWeights& weights, const LayerSources& sources);
  /// The residual stream h [rows, hidden] before the layer -> `out`, after it. Leaves in the
  /// buffers what backward() needs.
  void forward(const GradientRows& rows, const float* h, float* out);
  /// dh, the gradient of the stream after the layer, becomes that of the stream before it, h, which
  /// forward() had last. Notes the squared lengths of all linears.
  void backward(const GradientRows& rows, const float* h, float* dh, SquaresLog& squares);

 private:
  /// A linear with its input, of all rows of the pass.
  struct Linear {
    const LinearSource& source;
    const DeviceLinear& weight;
    const float* x = nullptr;
  };
  GradientNorm norm(const float* weight, int64_t heads, int64_t width) const;
  void apply(const Linear& linear, float* y) const;
  void back(const Linear& linear, int64_t inputs, const float* dy, ProductResult result, float* dx,
            SquaresLog& squares) const;
  int64_t input_lengths(const Linear& linear, SquaresLog& squares) const;

  GradientAttention attention_shape() const;
  GradientDelta delta_shape() const;
  DeltaGates delta_gate_rows() const;
  DeltaRows delta_rows() const;
  void normed_heads(bool backward) const;
  void attention_forward() const;
  void attention_backward(const float* dy, SquaresLog& squares) const;
  void delta_forward_rows() const;
  void delta_recurrence_back() const;
  void delta_backward_rows(const float* dy, SquaresLog& squares) const;

  GradientRouter router() const;
  Assignments assignments() const;
  GradientProduct expert_product(const DeviceLinear& weight, const float* x, int64_t cols,
                                 float* out) const;
  void route();
  void mlp_forward(const MlpSources& sources, const MlpWeights& weights, float* y) const;
  void mlp_backward(const MlpSources& sources, const MlpWeights& weights, int64_t inputs,
                    const float* dy, ProductResult result, SquaresLog& squares) const;
  void moe_forward(float* out);
  void note_experts(LinearSource MlpSources::*role, int64_t inputs, int64_t gradients,
                    SquaresLog& squares) const;
  void experts_backward(const float* dy, SquaresLog& squares) const;
  void moe_backward(const float* dy, SquaresLog& squares) const;

  const ModelConfig& config_;
  const GradientBuffers& at_;
  GradientRope rope_;
  cudaStream_t stream_;
  const LayerWeights* weights_ = nullptr;
  const LayerSources* sources_ = nullptr;
  GradientRows rows_;
  ExpertRows experts_;
};

}  // namespace nibble::cuda
