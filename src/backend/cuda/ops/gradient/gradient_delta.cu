// Around the recurrence: a thread has a number, or a warp a head of a row. Bound: bytes, each
// operand read and written once. The recurrence itself is gradient_recurrence.cu
// and gradient_recurrence_back.cu.
#include "backend/cuda/ops/gradient/gradient_delta.h"
#include "backend/cuda/ops/gradient/gradient_parts.cuh"

namespace nibble::cuda {
namespace {

constexpr float kUnitEps = 1e-6F;  // inside the root of the squared length, not of its mean

__device__ int channels_of(const GradientDelta& d) {
  return 2 * d.k_heads * d.k_dim + d.v_heads * d.v_dim;
}

__global__ __launch_bounds__(kRowThreads) void convolve_kernel(GradientDelta d, const float* conv,
                                                               const float* qkv, float* convolved,
                                                               float* active) {
  const int64_t i = thread_index();
  const int width = channels_of(d);
  if (i >= int64_t{d.rows} * width) return;
  const int64_t row = i / width;
  const int channel = static_cast<int>(i % width);
  const int64_t first = d.sample_of_row[row].begin;
  float sum = 0.0F;
  for (int j = 0; j < d.taps; ++j) {
    const int64_t from = row - d.taps + 1 + j;
    if (from >= first) sum += conv[channel * d.taps + j] * qkv[from * width + channel];
  }
  convolved[i] = sum;
  active[i] = silu(sum);
}

__global__ __launch_bounds__(kRowThreads) void slope_kernel(const float* convolved, float* dactive,
                                                            int64_t count) {
  const int64_t i = thread_index();
  if (i < count) dactive[i] *= silu_slope(convolved[i]);
}

__global__ __launch_bounds__(kRowThreads) void convolve_back_kernel(GradientDelta d,
                                                                    const float* conv,
                                                                    const float* dconvolved,
                                                                    float* dqkv) {
  const int64_t i = thread_index();
  const int width = channels_of(d);
  if (i >= int64_t{d.rows} * width) return;
  const int64_t row = i / width;
  const int channel = static_cast<int>(i % width);
  float sum = 0.0F;
  for (int ahead = 0; ahead < d.taps && row + ahead < d.sample_of_row[row].end; ++ahead)
    sum +=
        conv[channel * d.taps + d.taps - 1 - ahead] * dconvolved[(row + ahead) * width + channel];
  dqkv[i] = sum;
}

/// The vector of a warp: head `part` of queries (part < k_heads) or of keys of a row.
struct UnitVector {
  int64_t row;
  int head;  // of keys
  bool is_key;
  int64_t from;  // in active

  __device__ UnitVector(const GradientDelta& d, int index)
      : row(index / (2 * d.k_heads)),
        head(index % (2 * d.k_heads) % d.k_heads),
        is_key(index % (2 * d.k_heads) >= d.k_heads),
        from(row * channels_of(d) + int64_t{index % (2 * d.k_heads)} * d.k_dim) {}
  __device__ float scale(const GradientDelta& d) const {
    return is_key ? 1.0F : 1.0F / sqrtf(static_cast<float>(d.k_dim));
  }
};

__device__ float squares_of(const float* x, int count) {
  float sum = 0.0F;
  for (int i = lane(); i < count; i += kWarp) sum += x[i] * x[i];
  return warp_sum_float(sum) + kUnitEps;
}

__global__ __launch_bounds__(kRowThreads) void unit_kernel(GradientDelta d, const float* active,
                                                           float* q, float* k) {
  const int index = warp_index();
  if (index >= d.rows * 2 * d.k_heads) return;
  const UnitVector one(d, index);
  const float* x = active + one.from;
  float* to = (one.is_key ? k : q) + (one.row * d.k_heads + one.head) * d.k_dim;
  const float factor = one.scale(d) / sqrtf(squares_of(x, d.k_dim));
  for (int i = lane(); i < d.k_dim; i += kWarp) to[i] = factor * x[i];
}

/// With f = scale / r and r the root: dx = f (dy - x (x . dy) / r^2).
__global__ __launch_bounds__(kRowThreads) void unit_back_kernel(GradientDelta d,
                                                                const float* active,
                                                                const float* dq, const float* dk,
                                                                float* dactive) {
  const int index = warp_index();
  if (index >= d.rows * 2 * d.k_heads) return;
  const UnitVector one(d, index);
  const int group = d.v_heads / d.k_heads;
  const float* x = active + one.from;
  const float* above =
      (one.is_key ? dk : dq) + (one.row * d.v_heads + int64_t{one.head} * group) * d.k_dim;
  const float squares = squares_of(x, d.k_dim);
  const float factor = one.scale(d) / sqrtf(squares);
  float along = 0.0F;
  for (int i = lane(); i < d.k_dim; i += kWarp)
    for (int g = 0; g < group; ++g) along += x[i] * above[g * d.k_dim + i];
  along = warp_sum_float(along) / squares;
  for (int i = lane(); i < d.k_dim; i += kWarp) {
    float dy = 0.0F;
    for (int g = 0; g < group; ++g) dy += above[g * d.k_dim + i];
    dactive[one.from + i] = factor * (dy - x[i] * along);
  }
}

__device__ float softplus(float x) { return x > 20.0F ? x : log1pf(expf(x)); }

__global__ __launch_bounds__(kRowThreads) void gates_kernel(GradientDelta d, DeltaGates gates) {
  const int64_t i = thread_index();
  if (i >= int64_t{d.rows} * d.v_heads) return;
  const int64_t head = i % d.v_heads;
  gates.alpha[i] = expf(-gates.decay[head] * softplus(gates.a[i] + gates.dt_bias[head]));
  gates.beta[i] = sigmoid(gates.beta[i]);
}

__global__ __launch_bounds__(kRowThreads) void gates_back_kernel(GradientDelta d, DeltaGates gates,
                                                                 float* dalpha, float* dbeta) {
  const int64_t i = thread_index();
  if (i >= int64_t{d.rows} * d.v_heads) return;
  const int64_t head = i % d.v_heads;
  const float slope = sigmoid(gates.a[i] + gates.dt_bias[head]);
  dalpha[i] *= gates.alpha[i] * -gates.decay[head] * slope;
  dbeta[i] *= gates.beta[i] * (1.0F - gates.beta[i]);
}

int64_t numbers(const GradientDelta& d) { return int64_t{d.rows} * d.channels(); }
int64_t vectors(const GradientDelta& d) { return int64_t{d.rows} * 2 * d.k_heads; }
int64_t heads(const GradientDelta& d) { return int64_t{d.rows} * d.v_heads; }

}  // namespace

cudaError_t convolve_forward(const GradientDelta& shape, const float* conv, const float* qkv,
                             float* convolved, float* active, cudaStream_t stream) {
  convolve_kernel<<<blocks_of_threads(numbers(shape)), kRowThreads, 0, stream>>>(shape, conv, qkv,
                                                                                 convolved, active);
  return cudaGetLastError();
}

cudaError_t convolve_backward(const GradientDelta& shape, const float* conv, const float* convolved,
                              float* dactive, float* dqkv, cudaStream_t stream) {
  const unsigned blocks = blocks_of_threads(numbers(shape));
  slope_kernel<<<blocks, kRowThreads, 0, stream>>>(convolved, dactive, numbers(shape));
  convolve_back_kernel<<<blocks, kRowThreads, 0, stream>>>(shape, conv, dactive, dqkv);
  return cudaGetLastError();
}

cudaError_t unit_lengths(const GradientDelta& shape, const float* active, float* q, float* k,
                         cudaStream_t stream) {
  unit_kernel<<<blocks_of_warps(vectors(shape)), kRowThreads, 0, stream>>>(shape, active, q, k);
  return cudaGetLastError();
}

cudaError_t unit_lengths_back(const GradientDelta& shape, const float* active, const float* dq,
                              const float* dk, float* dactive, cudaStream_t stream) {
  unit_back_kernel<<<blocks_of_warps(vectors(shape)), kRowThreads, 0, stream>>>(shape, active, dq,
                                                                                dk, dactive);
  return cudaGetLastError();
}

cudaError_t delta_gates(const GradientDelta& shape, const DeltaGates& gates, cudaStream_t stream) {
  gates_kernel<<<blocks_of_threads(heads(shape)), kRowThreads, 0, stream>>>(shape, gates);
  return cudaGetLastError();
}

cudaError_t delta_gates_back(const GradientDelta& shape, const DeltaGates& gates, float* dalpha,
                             float* dbeta, cudaStream_t stream) {
  gates_back_kernel<<<blocks_of_threads(heads(shape)), kRowThreads, 0, stream>>>(shape, gates,
                                                                                 dalpha, dbeta);
  return cudaGetLastError();
}

}  // namespace nibble::cuda
