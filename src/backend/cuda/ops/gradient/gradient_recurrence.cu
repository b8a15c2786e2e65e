// The delta rule token by token, one thread block for one head of one sample, in F32:
//   S = alpha S;  u = beta (v - S^T k);  S = S + k u^T;  out = S^T q
// Forward a thread has a column of the state, in shared memory. Backward goes chunk by chunk: the
// chunk's states are computed again into device memory, and the gradient of the state, in shared
// memory, moves through its tokens from the last to the first. Any card from sm_80 up.
// Bound: reads of shared memory, 3 k_dim v_dim numbers a token forward and 5 backward.
#include "backend/cuda/ops/gradient/gradient_delta.h"
#include "backend/cuda/ops/gradient/gradient_parts.cuh"

namespace nibble::cuda {
namespace {

constexpr int kWarpsMax = kDeltaDimMax / kWarp;

/// One head of one sample, and the vectors of the token in work.
struct HeadOfSample {
  const GradientDelta& d;
  const DeltaRows& rows;
  DeltaSample sample;
  int head;

  __device__ int64_t row(int t) const { return int64_t{sample.begin} + t; }
  __device__ int64_t at_key(int64_t r) const {
    return (r * d.k_heads + head / (d.v_heads / d.k_heads)) * d.k_dim;
  }
  __device__ float value(int64_t r, int j) const {
    const int64_t width = 2 * int64_t{d.k_heads} * d.k_dim + int64_t{d.v_heads} * d.v_dim;
    return rows.active[r * width + 2 * int64_t{d.k_heads} * d.k_dim + int64_t{head} * d.v_dim + j];
  }
  __device__ int64_t gate(int64_t r) const { return r * d.v_heads + head; }
  __device__ int64_t at_value(int64_t r) const { return (r * d.v_heads + head) * d.v_dim; }
  __device__ int64_t start(int t) const {
    return (int64_t{sample.chunk + t / kGradientChunk} * d.v_heads + head) * d.k_dim * d.v_dim;
  }
};

__global__ void delta_forward_kernel(GradientDelta d, DeltaRows rows, float* mixed, float* starts) {
  extern __shared__ float shared[];  // S [k_dim][v_dim], k [k_dim], q [k_dim]
  float* s = shared;
  float* k = s + d.k_dim * d.v_dim;
  float* q = k + d.k_dim;
  const HeadOfSample at{d, rows, d.samples[blockIdx.x], static_cast<int>(blockIdx.y)};
  const int j = static_cast<int>(threadIdx.x);
  const bool has_column = j < d.v_dim;
  for (int i = 0; has_column && i < d.k_dim; ++i) s[i * d.v_dim + j] = 0.0F;
  for (int t = 0; t < at.sample.count; ++t) {
    const int64_t row = at.row(t);
    __syncthreads();
    for (int i = j; i < d.k_dim; i += static_cast<int>(blockDim.x)) {
      k[i] = rows.k[at.at_key(row) + i];
      q[i] = rows.q[at.at_key(row) + i];
    }
    __syncthreads();
    if (!has_column) continue;
    if (t % kGradientChunk == 0)
      for (int i = 0; i < d.k_dim; ++i) starts[at.start(t) + i * d.v_dim + j] = s[i * d.v_dim + j];
    const float alpha = rows.alpha[at.gate(row)];
    float predicted = 0.0F, out = 0.0F;
#pragma unroll 8
    for (int i = 0; i < d.k_dim; ++i) predicted = fmaf(k[i], alpha * s[i * d.v_dim + j], predicted);
    const float u = rows.beta[at.gate(row)] * (at.value(row, j) - predicted);
#pragma unroll 8
    for (int i = 0; i < d.k_dim; ++i) {
      const float next = fmaf(k[i], u, alpha * s[i * d.v_dim + j]);
      s[i * d.v_dim + j] = next;
      out = fmaf(q[i], next, out);
    }
    mixed[at.at_value(row) + j] = out;
  }
}

/// The sum over the block, in every thread. Barriers are inside.
__device__ float sum_of_block(float x, float* scratch) {
  x = warp_sum_float(x);
  __syncthreads();
  if (lane() == 0) scratch[threadIdx.x / kWarp] = x;
  __syncthreads();
  float sum = 0.0F;
  for (int w = 0; w < static_cast<int>(blockDim.x) / kWarp; ++w) sum += scratch[w];
  return sum;
}

/// A block's walk through the chunks of one head of one sample.
class HeadBack {
 public:
  /// shared: ds [k_dim][v_dim + 1], k and q [k_dim], u, du and dout [v_dim], sums [kWarpsMax].
  __device__ HeadBack(const HeadOfSample& at, const DeltaBack& back, float* scratch, float* shared)
      : at_(at),
        back_(back),
        states_(scratch),
        learnt_(scratch + kGradientChunk * at.d.k_dim * at.d.v_dim),
        ds_(shared),
        k_(ds_ + at.d.k_dim * (at.d.v_dim + 1)),
        q_(k_ + at.d.k_dim),
        u_(q_ + at.d.k_dim),
        du_(u_ + at.d.v_dim),
        dout_(du_ + at.d.v_dim),
        sums_(dout_ + at.d.v_dim),
        thread_(static_cast<int>(threadIdx.x)) {}

  __device__ void run() {
    for (int i = 0; has_column() && i < at_.d.k_dim; ++i) ds(i, thread_) = 0.0F;
    const int chunks = (at_.sample.count + kGradientChunk - 1) / kGradientChunk;
    for (int chunk = chunks - 1; chunk >= 0; --chunk) {
      const int begin = chunk * kGradientChunk;
      const int end = min(begin + kGradientChunk, at_.sample.count);
      for (int t = begin; t < end; ++t) forward(t, t - begin, end - begin);
      for (int t = end - 1; t >= begin; --t) backward(t, t - begin);
    }
  }

 private:
  __device__ bool has_column() const { return thread_ < at_.d.v_dim; }
  __device__ float& ds(int i, int j) { return ds_[i * (at_.d.v_dim + 1) + j]; }
  __device__ float* state(int index) { return states_ + index * at_.d.k_dim * at_.d.v_dim; }

  __device__ void load_keys(int64_t row) {
    __syncthreads();
    for (int i = thread_; i < at_.d.k_dim; i += static_cast<int>(blockDim.x)) {
      k_[i] = at_.rows.k[at_.at_key(row) + i];
      q_[i] = at_.rows.q[at_.at_key(row) + i];
    }
    __syncthreads();
  }

  /// States before each token of a chunk, and v - S^T k of each.
  __device__ void forward(int t, int index, int count) {
    const int64_t row = at_.row(t);
    const int k_dim = at_.d.k_dim, v_dim = at_.d.v_dim;
    load_keys(row);
    if (!has_column()) return;
    float* s = state(index) + thread_;
    if (index == 0)
      for (int i = 0; i < k_dim; ++i)
        s[i * v_dim] = back_.starts[at_.start(t) + i * v_dim + thread_];
    const float alpha = at_.rows.alpha[at_.gate(row)];
    float predicted = 0.0F;
#pragma unroll 8
    for (int i = 0; i < k_dim; ++i) predicted = fmaf(k_[i], alpha * s[i * v_dim], predicted);
    const float missing = at_.value(row, thread_) - predicted;
    learnt_[index * v_dim + thread_] = missing;
    if (index + 1 == count) return;
    const float u = at_.rows.beta[at_.gate(row)] * missing;
    float* next = state(index + 1) + thread_;
#pragma unroll 8
    for (int i = 0; i < k_dim; ++i) next[i * v_dim] = fmaf(k_[i], u, alpha * s[i * v_dim]);
  }

  /// With P = alpha S before the token and p = P^T k the prediction: u = beta (v - p), so
  /// dv = beta du, dp = -beta du, and p leads to P and k.
  __device__ void backward(int t, int index) {
    const int64_t row = at_.row(t);
    const int k_dim = at_.d.k_dim, v_dim = at_.d.v_dim;
    const float alpha = at_.rows.alpha[at_.gate(row)], beta = at_.rows.beta[at_.gate(row)];
    load_keys(row);
    float dbeta = 0.0F, dalpha = 0.0F, du = 0.0F;
    if (has_column()) {
      const float missing = learnt_[index * v_dim + thread_];
      const float dout = back_.dmixed[at_.at_value(row) + thread_];
#pragma unroll 8
      for (int i = 0; i < k_dim; ++i) {
        const float value = fmaf(q_[i], dout, ds(i, thread_));
        ds(i, thread_) = value;
        du = fmaf(k_[i], value, du);
      }
      dbeta = du * missing;
      du *= beta;
      u_[thread_] = beta * missing;
      du_[thread_] = du;
      dout_[thread_] = dout;
      const int64_t width = 2 * int64_t{at_.d.k_heads} * k_dim + int64_t{at_.d.v_heads} * v_dim;
      back_.dactive[row * width + 2 * int64_t{at_.d.k_heads} * k_dim + int64_t{at_.head} * v_dim +
                    thread_] = du;
    }
    dbeta = sum_of_block(dbeta, sums_);  // its barriers make u, du and dout visible
    keys_back(row, state(index), alpha);
    __syncthreads();
    const float* before = state(index) + thread_;
    for (int i = 0; has_column() && i < k_dim; ++i) {
      const float value = fmaf(-k_[i], du, ds(i, thread_));
      dalpha = fmaf(value, before[i * v_dim], dalpha);
      ds(i, thread_) = alpha * value;
    }
    dalpha = sum_of_block(dalpha, sums_);
    if (thread_ != 0) return;
    back_.dbeta[at_.gate(row)] = dbeta;
    back_.dalpha[at_.gate(row)] = dalpha;
  }

  /// A thread has a row of the state. The state after the token is alpha S + k u^T.
  __device__ void keys_back(int64_t row, const float* before, float alpha) {
    const int v_dim = at_.d.v_dim;
    for (int i = thread_; i < at_.d.k_dim; i += static_cast<int>(blockDim.x)) {
      float dk = 0.0F, predicted = 0.0F, dq = 0.0F, written = 0.0F;
#pragma unroll 4
      for (int j = 0; j < v_dim; ++j) {
        const float s = before[i * v_dim + j];
        dk = fmaf(ds(i, j), u_[j], dk);
        predicted = fmaf(s, du_[j], predicted);
        dq = fmaf(s, dout_[j], dq);
        written = fmaf(u_[j], dout_[j], written);
      }
      const int64_t at = (row * at_.d.v_heads + at_.head) * at_.d.k_dim + i;
      back_.dk[at] = dk - alpha * predicted;
      back_.dq[at] = alpha * dq + k_[i] * written;
    }
  }

  const HeadOfSample& at_;
  const DeltaBack& back_;
  float* states_;  // [kGradientChunk][k_dim][v_dim]
  float* learnt_;  // [kGradientChunk][v_dim]
  float *ds_, *k_, *q_, *u_, *du_, *dout_, *sums_;
  int thread_;
};

/// A block has one head of one sample after the other.
__global__ void delta_backward_kernel(GradientDelta d, DeltaRows rows, DeltaBack back) {
  extern __shared__ float shared[];
  float* scratch = back.scratch + int64_t{blockIdx.x} * delta_scratch_floats(d.k_dim, d.v_dim);
  for (int item = static_cast<int>(blockIdx.x); item < d.sample_count * d.v_heads;
       item += static_cast<int>(gridDim.x)) {
    const HeadOfSample at{d, rows, d.samples[item / d.v_heads], item % d.v_heads};
    HeadBack(at, back, scratch, shared).run();
    __syncthreads();
  }
}

/// A warp at least for each 32 columns or rows of the state.
unsigned threads_of(const GradientDelta& d) {
  const int most = d.k_dim > d.v_dim ? d.k_dim : d.v_dim;
  return static_cast<unsigned>((most + kWarp - 1) / kWarp * kWarp);
}

template <typename Kernel>
cudaError_t allow(Kernel kernel, size_t bytes) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                              cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
}

}  // namespace

cudaError_t delta_forward(const GradientDelta& shape, const DeltaRows& rows, float* mixed,
                          float* starts, cudaStream_t stream) {
  const auto bytes =
      static_cast<size_t>(shape.k_dim * shape.v_dim + 2 * shape.k_dim) * sizeof(float);
  if (const cudaError_t error = allow(delta_forward_kernel, bytes); error != cudaSuccess)
    return error;
  const dim3 grid(static_cast<unsigned>(shape.sample_count), static_cast<unsigned>(shape.v_heads));
  delta_forward_kernel<<<grid, threads_of(shape), bytes, stream>>>(shape, rows, mixed, starts);
  return cudaGetLastError();
}

cudaError_t delta_backward(const GradientDelta& shape, const DeltaRows& rows, const DeltaBack& back,
                           cudaStream_t stream) {
  const auto bytes =
      static_cast<size_t>(shape.k_dim * (shape.v_dim + 3) + 3 * shape.v_dim + kWarpsMax) *
      sizeof(float);
  if (const cudaError_t error = allow(delta_backward_kernel, bytes); error != cudaSuccess)
    return error;
  const int items = shape.sample_count * shape.v_heads;
  const auto blocks = static_cast<unsigned>(items < back.blocks ? items : back.blocks);
  delta_backward_kernel<<<blocks, threads_of(shape), bytes, stream>>>(shape, rows, back);
  return cudaGetLastError();
}

}  // namespace nibble::cuda
