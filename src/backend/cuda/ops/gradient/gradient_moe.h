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
/// dlogits [rows, experts] from dweight [count]; probabilities as choose_experts left them.
cudaError_t router_backward(const GradientRouter& router, const Assignments& at,
                            const float* probabilities, const float* dweight, float* dlogits,
                            cudaStream_t stream);

/// out [rows, width] += sigmoid(gate [rows]) * y.
cudaError_t add_gated(const float* gate, const float* y, int32_t rows, int32_t width, float* out,
                      cudaStream_t stream);

/// The outputs y = W active of rows that are multiplied with a weight before they are added up.
struct WeighedRows {
  int32_t count = 0;
  int32_t width = 0;                // of active
  const int32_t* gather = nullptr;  // row of the sum for each; null: the row itself
  const float* weight = nullptr;    // [count]
  /// plain: the number itself; sigmoid: the gate whose sigmoid it is.
  enum class Kind : uint8_t { plain, sigmoid } kind = Kind::plain;
};
/// dactive [count, width] is W^T times the gradient dout of the sum. It becomes the gradient of
/// active, and dweight [count] that of the weight: dout . y = (W^T dout) . active.
cudaError_t weigh_backward(const WeighedRows& rows, const float* active, float* dactive,
                           float* dweight, cudaStream_t stream);
/// out [count] = |gradient of y|^2, of squares [rows], those of dout; zero if that is no finite
/// number.
cudaError_t weigh_squares(const WeighedRows& rows, const double* squares, double* out,
                          cudaStream_t stream);

}  // namespace nibble::cuda
