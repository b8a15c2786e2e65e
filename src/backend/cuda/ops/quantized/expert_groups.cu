// One thread block counts the rows of all experts; the rest has a thread for each expert, or a
// block for each row.
#include "backend/cuda/ops/quantized/expert_groups.h"
#include "backend/cuda/ops/quantized/scale_blocks.h"
#include "backend/cuda/ops/route/choose.cuh"
#include "backend/cuda/runtime/launch.cuh"

namespace nibble::cuda {
namespace {

constexpr int kThreads = kGroupsMost;
constexpr int kRowThreads = 128;
constexpr int kScaleBlockColumns = static_cast<int>(kScaleBlockScales * kNvfp4Group);

/// The first pass adds up counts, the second says where each row went.
__device__ void count_rows(const GroupRows& rows, int* counts) {
  const QuantizedExperts& lists = rows.lists;
  for (int i = static_cast<int>(threadIdx.x); i < *lists.count; i += kThreads) {
    const int32_t* entry = lists.list + i * lists.stride;
    atomicAdd(counts + entry[0], entry[2]);
  }
}
__device__ void place_rows(const GroupRows& rows) {
  for (int i = static_cast<int>(threadIdx.x); i < rows.assignment_count; i += kThreads)
    rows.groups.position[i] = -1;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < *rows.lists.count; i += kThreads) {
    const int32_t* entry = rows.lists.list + i * rows.lists.stride;
    for (int row = entry[1]; row < entry[1] + entry[2]; ++row)
      rows.groups.position[rows.assignments[row]] = row;
  }
}

__global__ void __launch_bounds__(kThreads) group_rows_kernel(const GroupRows rows) {
  __shared__ int counts[kThreads];
  __shared__ int2 scratch[kThreads / 32];
  const int expert = static_cast<int>(threadIdx.x);
  counts[expert] = 0;
  __syncthreads();
  count_rows(rows, counts);
  __syncthreads();
  const int count = counts[expert];
  int2 all;
  const int2 begin = exclusive_sums<kThreads / 32>(
      make_int2(count, static_cast<int>(scale_block_rows(count))), scratch, &all);
  if (expert < rows.groups.experts) {
    rows.groups.count[expert] = count;
    rows.groups.begin[expert] = begin.x;
    rows.groups.shift[expert] = begin.y - begin.x;
  }
  if (rows.assignments != nullptr) place_rows(rows);
}

struct Describe {
  ExpertGroups to;
  const uint8_t *w, *w_scales, *x, *x_scales;
  char* y;
  int32_t w_rows, cols;
  int64_t y_stride;
  int32_t number_bytes;
};

__device__ GroupScales scales_of(int rows, int cols) {
  const int row_blocks = static_cast<int>(scale_block_rows(rows) / kScaleBlockRows);
  const int column_blocks = cols / kScaleBlockColumns;
  const int row_bytes = column_blocks * static_cast<int>(kScaleBlockBytes);
  return {row_blocks, column_blocks, 1, row_bytes, row_blocks * row_bytes};
}

__global__ void __launch_bounds__(kThreads) describe_kernel(const Describe all) {
  const int e = static_cast<int>(threadIdx.x);
  const ExpertGroups& to = all.to;
  if (e >= to.experts) return;
  const int64_t first = int64_t{e} * all.w_rows;
  const int64_t begin = to.begin[e];
  const int64_t codes = all.cols / 2;
  const int64_t scales = all.cols / kNvfp4Group;
  to.sizes[e] = {all.w_rows, to.count[e], all.cols};
  to.w[e] = all.w + first * codes;
  to.w_scales[e] = all.w_scales + first * scales;
  to.x[e] = all.x + begin * codes;
  to.x_scales[e] = all.x_scales + (begin + to.shift[e]) * scales;
  to.y[e] = all.y + begin * all.y_stride * all.number_bytes;
  to.x_stride[e] = all.cols;
  to.y_stride[e] = all.y_stride;
  to.w_layout[e] = scales_of(all.w_rows, all.cols);
  to.x_layout[e] = scales_of(to.count[e], all.cols);
}

__global__ void __launch_bounds__(kRowThreads) return_kernel(const ReturnRows rows) {
  const int64_t item = blockIdx.x;
  const int64_t position = rows.position[item];
  if (position < 0) return;
  const auto* from = reinterpret_cast<const float4*>(rows.from + position * rows.columns);
  auto* to = reinterpret_cast<float4*>(rows.to + item * rows.to_stride);
  for (int64_t i = threadIdx.x; i < rows.columns / 4; i += kRowThreads) to[i] = from[i];
}

}  // namespace

void group_rows(const GroupRows& rows, const Launcher& launcher) {
  launch(group_rows_kernel, launcher.in_order(), 1, kThreads, 0, rows);
}

void describe_groups(const QuantizedGemm& gemm, const DeviceLinear& w, int number_bytes,
                     const ExpertGroups& groups, const Launcher& launcher) {
  const Describe all{.to = groups,
                     .w = w.values,
                     .w_scales = w.scales,
                     .x = gemm.x.codes,
                     .x_scales = gemm.x.scales,
                     .y = static_cast<char*>(gemm.y),
                     .w_rows = w.rows,
                     .cols = w.cols,
                     .y_stride = gemm.y_stride,
                     .number_bytes = number_bytes};
  launch(describe_kernel, launcher.in_order(), 1, kThreads, 0, all);
}

void return_rows(const ReturnRows& rows, const Launcher& launcher) {
  if (rows.count == 0) return;
  CHECK(rows.columns % 4 == 0 && rows.to_stride % 4 == 0, rows.columns, " columns");
  launch(return_kernel, launcher.in_order(), static_cast<unsigned>(rows.count), kRowThreads, 0,
         rows);
}

}  // namespace nibble::cuda
