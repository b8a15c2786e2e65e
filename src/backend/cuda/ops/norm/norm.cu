// These kernels stand between two blocks: they add the output of one block to h and compute x =
// norm(h) for the next one. One block of threads has one row. Bound: the bytes of y (with experts,
// top_k + 1 rows of y for each row).
#include "backend/cuda/ops/norm/norm.cuh"
#include "backend/cuda/ops/norm/norm.h"
#include "backend/cuda/ops/route/route.h"
#include "backend/cuda/runtime/launch.cuh"

namespace nibble::cuda {
namespace {

/// Computes the output of a block of the model at kWidth columns of a row; experts are added in the
/// order of their rank.
template <int kWidth>
__device__ __forceinline__ void block_output(const AddNormArgs& a, int row, int column,
                                             const float* weights, float shared_weight,
                                             float (&sum)[kWidth]) {
  const int64_t at = static_cast<int64_t>(row) * a.hidden + column;
  if (a.top_k == 0) return load_columns(a.y + at, sum);
  const float* y = a.y + static_cast<int64_t>(row) * a.top_k * a.hidden + column;
  float shared[kWidth] = {};
  if (a.shared != nullptr) load_columns(a.shared + at, shared);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) sum[i] = 0.0F;
  float part[kWidth];
#pragma unroll 8
  for (int k = 0; k < a.top_k; ++k) {
    load_columns(y + static_cast<int64_t>(k) * a.hidden, part);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum[i] = fmaf(weights[k], part[i], sum[i]);
  }
  if (a.shared == nullptr) return;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) sum[i] = fmaf(shared_weight, shared[i], sum[i]);
}

template <int kWidth>
__global__ void __launch_bounds__(kNormThreads)
    add_norm_kernel(const __grid_constant__ AddNormArgs a) {
  touch(a);
  __shared__ NormScratch<kWidth> scratch;
  const int row = blockIdx.x;
  const RowPart<kWidth> w = load_part<kWidth>(a.norm, a.hidden);
  wait_for_inputs();
  const float* weights = a.weights + row * a.top_k;
  const float shared_weight =
      a.shared == nullptr ? 0.0F : sigmoid(a.shared_gate[row * a.gate_stride]);
  float* stream = a.h + static_cast<int64_t>(row) * a.hidden;
  RowPart<kWidth> h = load_part<kWidth>(stream, a.hidden);
#pragma unroll
  for (int g = 0; g < RowPart<kWidth>::kGroups; ++g) {
    const int column = RowPart<kWidth>::column(g);
    if (column >= a.hidden || a.y == nullptr) continue;
    float sum[kWidth];
    block_output(a, row, column, weights, shared_weight, sum);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) h.v[g][i] = __fadd_rn(h.v[g][i], sum[i]);
    store_columns(h.v[g], stream + column);
  }
  float* wide =
      a.hidden_out == nullptr ? nullptr : a.hidden_out + static_cast<int64_t>(row) * a.hidden;
  const InputOrder order = row < a.packed_from ? InputOrder::placed : InputOrder::packed;
  norm_row(h, a.hidden, w, a.eps, order, a.x + row * a.x_stride, wide, scratch);
}

/// Loads four BF16 columns.
__device__ __forceinline__ void load_narrow(const uint16_t* from, float (&to)[4]) {
  const uint2 v = *reinterpret_cast<const uint2*>(from);
  to[0] = low_bf16(v.x);
  to[1] = high_bf16(v.x);
  to[2] = low_bf16(v.y);
  to[3] = high_bf16(v.y);
}

__global__ void __launch_bounds__(kNormThreads)
    combine_norm_kernel(const __grid_constant__ CombineNormArgs c) {
  const AddNormArgs& a = c.base;
  __shared__ NormScratch<4> scratch;
  __shared__ float weights[kRouteTopKMax];
  __shared__ int places[kRouteTopKMax];
  const int row = blockIdx.x;
  wait_for_inputs();
  if (threadIdx.x < a.top_k) {
    weights[threadIdx.x] = a.weights[row * a.top_k + threadIdx.x];
    places[threadIdx.x] = c.position[row * a.top_k + threadIdx.x];
  }
  const float shared_weight =
      c.shared == nullptr ? 0.0F : sigmoid(a.shared_gate[row * a.gate_stride]);
  __syncthreads();
  float* stream = a.h + static_cast<int64_t>(row) * a.hidden;
  RowPart<4> h;
#pragma unroll
  for (int g = 0; g < RowPart<4>::kGroups; ++g) {
    const int column = RowPart<4>::column(g);
    if (column >= a.hidden) continue;
    float sum[4] = {};
    float part[4];
#pragma unroll 8
    for (int k = 0; k < a.top_k; ++k) {
      load_narrow(c.y + static_cast<int64_t>(places[k]) * a.hidden + column, part);
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[i] = fmaf(weights[k], part[i], sum[i]);
    }
    if (c.shared != nullptr) {
      load_narrow(c.shared + static_cast<int64_t>(row) * a.hidden + column, part);
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[i] = fmaf(shared_weight, part[i], sum[i]);
    }
    load_columns(stream + column, h.v[g]);
#pragma unroll
    for (int i = 0; i < 4; ++i) h.v[g][i] += sum[i];
    store_columns(h.v[g], stream + column);
  }
  float* wide =
      a.hidden_out == nullptr ? nullptr : a.hidden_out + static_cast<int64_t>(row) * a.hidden;
  const InputOrder order = row < a.packed_from ? InputOrder::placed : InputOrder::packed;
  norm_row(h, a.hidden, load_part<4>(a.norm, a.hidden), a.eps, order, a.x + row * a.x_stride, wide,
           scratch);
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
  launch(args.hidden % 4 == 0 ? add_norm_kernel<4> : add_norm_kernel<1>, launcher,
         static_cast<unsigned>(args.rows), kNormThreads, 0, args);
}

void combine_norm(const CombineNormArgs& args, const Launcher& launcher) {
  CHECK(args.base.hidden % 4 == 0, "hidden size ", args.base.hidden);
  launch(combine_norm_kernel, launcher, static_cast<unsigned>(args.base.rows), kNormThreads, 0,
         args);
}

void gather_rows(const float* from, const int32_t* rows, int32_t count, int32_t width, float* to,
                 const Launcher& launcher) {
  launch(gather_rows_kernel, launcher, static_cast<unsigned>(count), kNormThreads, 0, from, rows,
         width, to);
}

}  // namespace nibble::cuda
