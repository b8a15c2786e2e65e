// The parts of a layer's gradient that work on each row by itself, in F32: norms, SwiGLU, squared
// lengths, sums. Oracle: gradient::Norm, gradient::MlpGradient, gradient::GradientSquares.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace nibble::cuda {

/// Vectors of `width` numbers: number i of head h of row r is at r * row + h * head + i.
struct HeadVectors {
  const float* values = nullptr;
  int64_t row = 0;
  int64_t head = 0;
};
struct MutableHeadVectors {
  float* values = nullptr;
  int64_t row = 0;
  int64_t head = 0;
};

/// y = x * rsqrt(mean(x^2) + eps) * weight for each of rows x heads vectors; sums in F64.
struct GradientNorm {
  const float* weight = nullptr;  // [width]
  float eps = 0.0F;
  int32_t rows = 0;
  int32_t heads = 1;
  int32_t width = 0;
};
cudaError_t norm_forward(const GradientNorm& norm, const HeadVectors& x,
                         const MutableHeadVectors& y, cudaStream_t stream);
/// dx += the gradient of x, given that of y.
cudaError_t norm_backward(const GradientNorm& norm, const HeadVectors& x, const HeadVectors& dy,
                          const MutableHeadVectors& dx, cudaStream_t stream);

/// out [rows] = |x|^2 of rows of `width`, zero if that is no finite number.
cudaError_t squared_lengths(const float* x, const int32_t* gather, int32_t rows, int32_t width,
                            double* out, cudaStream_t stream);

/// active = silu(gate) * up.
cudaError_t swiglu_forward(const float* gate, const float* up, float* active, int64_t count,
                           cudaStream_t stream);
/// Makes the gradients of gate and up of that of active. dgate or dup may be dactive itself.
cudaError_t swiglu_backward(const float* gate, const float* up, const float* dactive, float* dgate,
                            float* dup, int64_t count, cudaStream_t stream);

/// to += from.
cudaError_t add_rows(const float* from, float* to, int64_t count, cudaStream_t stream);

/// The gradient of log p(y) in logits [rows, vocabulary]: 1 at y, less the probabilities. y is the
/// token at which the probabilities, summed up in their order, pass random [rows], or, if they end
/// before, the first of the most probable ones.
struct LabelRows {
  const float* logits = nullptr;
  const double* random = nullptr;
  int32_t rows = 0;
  int32_t vocabulary = 0;  // at most kVocabularyMax
  int32_t padded = 0;      // columns of the result: step_columns(vocabulary)
};
inline constexpr int32_t kVocabularyMax = 1 << 19;
/// gradient [rows, 2 * padded] in two parts, as SplitRows has them; squares [rows]: its squared
/// lengths, zero where that is no finite number.
cudaError_t label_gradient(const LabelRows& rows, uint16_t* gradient, double* squares,
                           cudaStream_t stream);

}  // namespace nibble::cuda
