// These kernels stand between two blocks: they add the output of one block to h and compute x =
// norm(h) for the next one. One block of threads has one row. Bound: the bytes of y (with experts,
// top_k + 1 rows of y for each row).
#include "backend/cuda/ops/norm/norm.cuh"
#include "backend/cuda/ops/norm/norm_rows.h"
#include "backend/cuda/ops/quantized/quantized_row.cuh"
#include "backend/cuda/ops/route/route.h"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/runtime/with_value.h"

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
__device__ __forceinline__ void add_norm_row(const AddNormArgs& a, NormScratch<kWidth>& scratch) {
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

template <int kWidth>
__global__ void __launch_bounds__(kNormThreads)
    add_norm_kernel(const __grid_constant__ AddNormArgs a) {
  touch(a);
  __shared__ NormScratch<kWidth> scratch;
  add_norm_row(a, scratch);
}

template <ActivationFormat kInputs>
__global__ void __launch_bounds__(kNormThreads)
    add_norm_rows_kernel(const __grid_constant__ AddNormArgs a,
                         const __grid_constant__ QuantizeRows rows) {
  __shared__ NormScratch<4> scratch;
  add_norm_row(a, scratch);
  __syncthreads();  // the row that this block has written is read in other parts
  make_row<kNormThreads, kInputs>(rows, static_cast<int>(blockIdx.x));
}

/// Loads four BF16 columns.
__device__ __forceinline__ void load_narrow(const uint16_t* from, float (&to)[4]) {
  const uint2 v = *reinterpret_cast<const uint2*>(from);
  to[0] = low_bf16(v.x);
  to[1] = high_bf16(v.x);
  to[2] = low_bf16(v.y);
  to[3] = high_bf16(v.y);
}

__device__ __forceinline__ void combine_norm_row(const CombineNormArgs& c) {
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
    combine_norm_kernel(const __grid_constant__ CombineNormArgs c) {
  combine_norm_row(c);
}

template <ActivationFormat kInputs>
__global__ void __launch_bounds__(kNormThreads)
    combine_norm_rows_kernel(const __grid_constant__ CombineNormArgs c,
                             const __grid_constant__ QuantizeRows rows) {
  combine_norm_row(c);
  __syncthreads();  // the row that this block has written is read in other parts
  make_row<kNormThreads, kInputs>(rows, static_cast<int>(blockIdx.x));
}

__global__ void __launch_bounds__(kNormThreads)
    gather_rows_kernel(const float* from, const int32_t* rows, int width, float* to) {
  wait_for_inputs();
  const float* source = from + static_cast<int64_t>(rows[blockIdx.x]) * width;
  for (int i = threadIdx.x; i < width; i += kNormThreads)
    to[static_cast<int64_t>(blockIdx.x) * width + i] = source[i];
}

void check_rows_of(const AddNormArgs& norm, const QuantizeRows& rows) {
  check_rows(rows);
  CHECK(norm.hidden % 4 == 0 && rows.x == norm.x && rows.x_stride == norm.x_stride &&
            rows.count == norm.rows && rows.share == 1 && rows.from == nullptr &&
            rows.to == nullptr,
        "rows of codes that are not those of the norm: ", rows.count, " of ", norm.rows);
}

/// Calls act.operator()<inputs>() for the format of inputs that rows are made in.
template <typename Act>
void with_inputs(const QuantizeRows& rows, const Act& act) {
  with_value<ActivationFormat::nvfp4, ActivationFormat::fp8_token, ActivationFormat::fp8_tensor,
             ActivationFormat::fp8_group>(rows.weight.activations, act);
}

}  // namespace

void add_norm_rows(const AddNormArgs& norm, const QuantizeRows& rows, const Launcher& launcher) {
  check_rows_of(norm, rows);
  with_inputs(rows, [&]<ActivationFormat kInputs>() {
    launch(add_norm_rows_kernel<kInputs>, launcher, static_cast<unsigned>(norm.rows), kNormThreads,
           0, norm, rows);
  });
}

void combine_norm_rows(const CombineNormArgs& norm, const QuantizeRows& rows,
                       const Launcher& launcher) {
  check_rows_of(norm.base, rows);
  with_inputs(rows, [&]<ActivationFormat kInputs>() {
    launch(combine_norm_rows_kernel<kInputs>, launcher, static_cast<unsigned>(norm.base.rows),
           kNormThreads, 0, norm, rows);
  });
}

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
