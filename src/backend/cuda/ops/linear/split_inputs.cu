// A block has one row, or adjacent numbers; formulas and shapes are in split_inputs.h. It runs from
// compute capability 8.0 up. Bound: the bytes read and written; it was not measured and nothing is
// tuned, because it runs only in tests.
#include "backend/cuda/ops/linear/split_inputs.cuh"
#include "backend/cuda/ops/linear/split_inputs.h"
#include "backend/cuda/runtime/launch.cuh"

namespace nibble::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) split_kernel(const __grid_constant__ SplitRows a) {
  wait_for_inputs();
  const int64_t row = blockIdx.x;
  for (int c = static_cast<int>(threadIdx.x); c < a.columns; c += kThreads)
    store_parts(a.out + row * a.out_stride, a.out_stride, c, a.from[row * a.columns + c]);
}

__global__ void __launch_bounds__(kThreads) spread_kernel(const __grid_constant__ SpreadRows a) {
  wait_for_inputs();
  const int64_t to = blockIdx.x;
  const int64_t from = to < a.assignments ? to / a.share : to - a.assignments;
  const auto* source = reinterpret_cast<const uint4*>(a.from + from * a.stride);
  auto* out = reinterpret_cast<uint4*>(a.out + to * a.stride);
  for (int i = static_cast<int>(threadIdx.x); i < a.stride / 8; i += kThreads) out[i] = source[i];
}

__global__ void __launch_bounds__(kThreads) swiglu_kernel(const __grid_constant__ SwigluArgs a) {
  wait_for_inputs();
  const int64_t row = blockIdx.x;
  const int present = row < a.shared_begin ? a.routed_columns : a.shared_columns;
  for (int c = static_cast<int>(threadIdx.x); c < a.columns; c += kThreads) {
    const int64_t at = row * a.columns + c;
    const float x = c < present ? silu(a.gate[at]) * a.up[at] : 0.0F;
    store_parts(a.out + row * a.out_stride, a.out_stride, c, x);
  }
}

__global__ void __launch_bounds__(kThreads) add_kernel(float* y, float* more, int64_t count) {
  wait_for_inputs();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  y[i] = __fadd_rn(y[i], more[i]);
  more[i] = 0.0F;
}

}  // namespace

void split_rows(const SplitRows& args, const Launcher& launcher) {
  launch(split_kernel, launcher, static_cast<unsigned>(args.rows), kThreads, 0, args);
}

void spread_rows(const SpreadRows& args, const Launcher& launcher) {
  launch(spread_kernel, launcher, static_cast<unsigned>(args.assignments + args.rows), kThreads, 0,
         args);
}

void swiglu(const SwigluArgs& args, const Launcher& launcher) {
  launch(swiglu_kernel, launcher, static_cast<unsigned>(args.rows), kThreads, 0, args);
}

void add_and_clear(float* y, float* more, int64_t count, const Launcher& launcher) {
  launch(add_kernel, launcher, static_cast<unsigned>((count + kThreads - 1) / kThreads), kThreads,
         0, y, more, count);
}

}  // namespace nibble::cuda
