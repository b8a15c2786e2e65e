// Routed experts around their products, forward and backward, in F32. A row's top_k choices are
// `slots`; the rows of all experts, one expert after the other, are `assignments`. The choice of
// experts is a constant. Oracle: gradient::MoeGradient.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace nibble::cuda {

enum class RouterWeights : uint8_t { renormalised, plain };

struct GradientRouter {
  int32_t rows = 0;
  int32_t experts = 0;
  int32_t top_k = 0;
  RouterWeights weights = RouterWeights::renormalised;
};

/// logits [rows, experts] become the softmax over all; the top_k largest of a row (of equal ones
/// the lower index) with their weights go to chosen and weights [rows, top_k].
cudaError_t choose_experts(const GradientRouter& router, float* logits, int32_t* chosen,
                           float* weights, cudaStream_t stream);

/// The rows of the pass that experts got, expert after expert.
struct Assignments {
  int32_t count = 0;
  const int32_t* row = nullptr;     // [count] of the pass
  const int32_t* expert = nullptr;  // [count]
  const float* weight = nullptr;    // [count] what the output is multiplied with
  const int32_t* slots = nullptr;   // [rows, top_k] assignment of each choice, experts ascending
};

/// out [rows, width] = the sum over a row's choices of weight * y [count, width]; without
/// `weighted` of y alone.
enum class Weighted : uint8_t { yes, no };
cudaError_t combine_experts(const GradientRouter& router, const Assignments& at, Weighted weighted,
                            const float* y, int32_t width, float* out, cudaStream_t stream);
/// dy [rows, width] -> dout [count, width] = weight * dy of its row, and dweight [count] = dy . y.
cudaError_t spread_gradient(const Assignments& at, const float* dy, const float* y, int32_t width,
                            float* dout, float* dweight, cudaStream_t stream);
/// dlogits [rows, experts] from dweight [count]; probabilities as choose_experts left them.
cudaError_t router_backward(const GradientRouter& router, const Assignments& at,
                            const float* probabilities, const float* dweight, float* dlogits,
                            cudaStream_t stream);

/// out [rows, width] += sigmoid(gate [rows]) * y.
cudaError_t add_gated(const float* gate, const float* y, int32_t rows, int32_t width, float* out,
                      cudaStream_t stream);
/// Makes dy [rows, width] and dgate [rows] of dout.
cudaError_t gated_backward(const float* gate, const float* y, const float* dout, int32_t rows,
                           int32_t width, float* dy, float* dgate, cudaStream_t stream);

}  // namespace nibble::cuda
