// The seam between two blocks: h += output of the block, x = norm(h) for the next one. One block of
// threads per row. Bound: the bytes of y (with experts: top_k + 1 rows of y per row).
#include "backend/cuda/launch.cuh"
#include "backend/cuda/norm.cuh"

namespace nibble::cuda {
namespace {

__global__ void __launch_bounds__(kNormThreads)
    add_norm_kernel(const __grid_constant__ AddNormArgs a) {
  __shared__ float scratch[kNormThreads / 32];
  wait_for_inputs();
  const int row = blockIdx.x;
  float* h = a.h + static_cast<int64_t>(row) * a.hidden;
  __shared__ float weights[kRouteTopKMax];
  if (threadIdx.x < a.top_k) weights[threadIdx.x] = a.weights[row * a.top_k + threadIdx.x];
  __syncthreads();
  const float shared_weight =
      a.shared == nullptr ? 0.0F : sigmoid(a.shared_gate[row * a.gate_stride]);
  float squares = 0.0F;
  for (int i = threadIdx.x; i < a.hidden; i += kNormThreads) {
    float sum = 0.0F;
    if (a.top_k == 0) {
      sum = a.y[static_cast<int64_t>(row) * a.hidden + i];
    } else {
      const float* y = a.y + static_cast<int64_t>(row) * a.top_k * a.hidden + i;
#pragma unroll 8
      for (int k = 0; k < a.top_k; ++k)
        sum = fmaf(weights[k], y[static_cast<int64_t>(k) * a.hidden], sum);
      if (a.shared != nullptr)
        sum = fmaf(shared_weight, a.shared[static_cast<int64_t>(row) * a.hidden + i], sum);
    }
    const float value = h[i] + sum;
    h[i] = value;
    squares = fmaf(value, value, squares);
  }
  float* wide =
      a.hidden_out == nullptr ? nullptr : a.hidden_out + static_cast<int64_t>(row) * a.hidden;
  norm_row(h, squares, a.hidden, a.norm, a.eps, a.x + row * a.x_stride, wide, scratch);
}

__global__ void __launch_bounds__(kNormThreads)
    gather_rows_kernel(const float* from, const int32_t* rows, int width, float* to) {
  wait_for_inputs();
  const float* source = from + static_cast<int64_t>(rows[blockIdx.x]) * width;
  for (int i = threadIdx.x; i < width; i += kNormThreads)
    to[static_cast<int64_t>(blockIdx.x) * width + i] = source[i];
}

}  // namespace

void add_norm(const AddNormArgs& args, const Launcher& launcher) {
  launch(add_norm_kernel, launcher, static_cast<unsigned>(args.rows), kNormThreads, 0, args);
}

void gather_rows(const float* from, const int32_t* rows, int32_t count, int32_t width, float* to,
                 const Launcher& launcher) {
  launch(gather_rows_kernel, launcher, static_cast<unsigned>(count), kNormThreads, 0, from, rows,
         width, to);
}

}  // namespace nibble::cuda
