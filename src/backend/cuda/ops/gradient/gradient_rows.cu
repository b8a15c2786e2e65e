// A warp has a vector, or a thread a number; labels are gradient_labels.cu. Bound: bytes, each
// operand read and written once.
#include "backend/cuda/ops/gradient/gradient_parts.cuh"
#include "backend/cuda/ops/gradient/gradient_rows.h"

namespace nibble::cuda {
namespace {

// ---- norms ----

template <typename Vectors>
__device__ auto* vector_of(const Vectors& v, const GradientNorm& norm, int index) {
  return v.values + index / norm.heads * v.row + index % norm.heads * v.head;
}

__device__ double norm_scale(const GradientNorm& norm, const float* x) {
  double squares = 0;
  for (int i = lane(); i < norm.width; i += kWarp) squares += static_cast<double>(x[i]) * x[i];
  return 1.0 / sqrt(warp_sum_double(squares) / norm.width + static_cast<double>(norm.eps));
}

__global__ __launch_bounds__(kRowThreads) void norm_kernel(GradientNorm norm, HeadVectors from,
                                                           MutableHeadVectors to) {
  const int index = warp_index();
  if (index >= norm.rows * norm.heads) return;
  const float* x = vector_of(from, norm, index);
  float* y = vector_of(to, norm, index);
  const double scale = norm_scale(norm, x);
  for (int i = lane(); i < norm.width; i += kWarp)
    y[i] = static_cast<float>(x[i] * scale * norm.weight[i]);
}

/// With s the scale: dx_i += s w_i dy_i - x_i s^3 / n sum_j(x_j w_j dy_j).
__global__ __launch_bounds__(kRowThreads) void norm_back_kernel(GradientNorm norm, HeadVectors from,
                                                                HeadVectors above,
                                                                MutableHeadVectors below) {
  const int index = warp_index();
  if (index >= norm.rows * norm.heads) return;
  const float* x = vector_of(from, norm, index);
  const float* dy = vector_of(above, norm, index);
  float* dx = vector_of(below, norm, index);
  const double scale = norm_scale(norm, x);
  double along = 0;
  for (int i = lane(); i < norm.width; i += kWarp)
    along += static_cast<double>(x[i]) * norm.weight[i] * static_cast<double>(dy[i]);
  along = warp_sum_double(along) * scale * scale * scale / norm.width;
  for (int i = lane(); i < norm.width; i += kWarp)
    dx[i] += static_cast<float>(scale * norm.weight[i] * dy[i] - x[i] * along);
}

// ---- rows ----

__global__ __launch_bounds__(kRowThreads) void squares_kernel(const float* x, const int32_t* gather,
                                                              int rows, int width, double* out) {
  const int row = warp_index();
  if (row >= rows) return;
  const float* from = x + int64_t{gather == nullptr ? row : gather[row]} * width;
  double sum = 0;
  for (int i = lane(); i < width; i += kWarp) sum += static_cast<double>(from[i]) * from[i];
  sum = warp_sum_double(sum);
  if (lane() == 0) out[row] = isfinite(sum) ? sum : 0.0;
}

__global__ __launch_bounds__(kRowThreads) void swiglu_kernel(const float* gate, const float* up,
                                                             float* active, int64_t count) {
  const int64_t i = thread_index();
  if (i < count) active[i] = silu(gate[i]) * up[i];
}

__global__ __launch_bounds__(kRowThreads) void swiglu_back_kernel(const float* gate,
                                                                  const float* up,
                                                                  const float* dactive,
                                                                  float* dgate, float* dup,
                                                                  int64_t count) {
  const int64_t i = thread_index();
  if (i >= count) return;
  const float g = gate[i], d = dactive[i], u = up[i];
  dgate[i] = d * u * silu_slope(g);
  dup[i] = d * silu(g);
}

__global__ __launch_bounds__(kRowThreads) void add_kernel(const float* from, float* to,
                                                          int64_t count) {
  const int64_t i = thread_index();
  if (i < count) to[i] += from[i];
}

}  // namespace

cudaError_t norm_forward(const GradientNorm& norm, const HeadVectors& x,
                         const MutableHeadVectors& y, cudaStream_t stream) {
  norm_kernel<<<blocks_of_warps(int64_t{norm.rows} * norm.heads), kRowThreads, 0, stream>>>(norm, x,
                                                                                            y);
  return cudaGetLastError();
}

cudaError_t norm_backward(const GradientNorm& norm, const HeadVectors& x, const HeadVectors& dy,
                          const MutableHeadVectors& dx, cudaStream_t stream) {
  norm_back_kernel<<<blocks_of_warps(int64_t{norm.rows} * norm.heads), kRowThreads, 0, stream>>>(
      norm, x, dy, dx);
  return cudaGetLastError();
}

cudaError_t squared_lengths(const float* x, const int32_t* gather, int32_t rows, int32_t width,
                            double* out, cudaStream_t stream) {
  squares_kernel<<<blocks_of_warps(rows), kRowThreads, 0, stream>>>(x, gather, rows, width, out);
  return cudaGetLastError();
}

cudaError_t swiglu_forward(const float* gate, const float* up, float* active, int64_t count,
                           cudaStream_t stream) {
  swiglu_kernel<<<blocks_of_threads(count), kRowThreads, 0, stream>>>(gate, up, active, count);
  return cudaGetLastError();
}

cudaError_t swiglu_backward(const float* gate, const float* up, const float* dactive, float* dgate,
                            float* dup, int64_t count, cudaStream_t stream) {
  swiglu_back_kernel<<<blocks_of_threads(count), kRowThreads, 0, stream>>>(gate, up, dactive, dgate,
                                                                           dup, count);
  return cudaGetLastError();
}

cudaError_t add_rows(const float* from, float* to, int64_t count, cudaStream_t stream) {
  add_kernel<<<blocks_of_threads(count), kRowThreads, 0, stream>>>(from, to, count);
  return cudaGetLastError();
}

}  // namespace nibble::cuda
