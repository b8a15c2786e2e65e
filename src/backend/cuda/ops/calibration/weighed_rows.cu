// A warp scales a row. Bound: bytes; a row is read and written once for each linear that has it.
#include "backend/cuda/ops/calibration/input_segments.cuh"
#include "backend/cuda/ops/calibration/weighed_rows.h"
#include "backend/cuda/ptx/bf16.cuh"

namespace nibble::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kThreads = 256;
constexpr int kRowsAtOnce = kThreads / kWarp;

__device__ float weight_of(const DeviceTokenWeights& w, int64_t token) {
  if (w.weights == nullptr) return 1.0F;
  if (w.tokens == nullptr) return token < w.count ? w.weights[token] : w.other;
  int low = 0, high = w.count;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (w.tokens[middle] < token) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < w.count && w.tokens[low] == token ? w.weights[low] : w.other;
}

/// The blocks of column blockIdx.y have one input; a warp has one row at a time.
__global__ __launch_bounds__(kThreads) void weigh_kernel(InputRows in, const int32_t* row,
                                                         WeighedRows to) {
  const Segment rows = segment_of(in, static_cast<int>(blockIdx.y));
  const DeviceTokenWeights weights = to.weights[blockIdx.y];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t stride = weighed_stride(in.cols);
  for (int a = rows.begin + static_cast<int>(blockIdx.x) * kRowsAtOnce +
               static_cast<int>(threadIdx.x) / kWarp;
       a < rows.end; a += static_cast<int>(gridDim.x) * kRowsAtOnce) {
    if (lane == 0) to.row[a] = row[a] < 0 ? -1 : a;
    if (row[a] < 0) continue;
    const int pass_row = to.pass_row == nullptr ? a : to.pass_row[a];
    const float factor = sqrtf(weight_of(weights, to.first_token + pass_row));
    for (int i = lane * 8; i < stride; i += kWarp * 8) {
      const uint4 v = *reinterpret_cast<const uint4*>(in.packed_x + row[a] * in.x_stride + i);
      const auto scaled = [factor](uint32_t pair) {
        return to_bf16_pair(factor * low_bf16(pair), factor * high_bf16(pair));
      };
      *reinterpret_cast<uint4*>(to.x + a * stride + i) =
          make_uint4(scaled(v.x), scaled(v.y), scaled(v.z), scaled(v.w));
    }
  }
}

}  // namespace

cudaError_t weigh_rows(const InputRows& in, const SumScratch& scratch, const WeighedRows& to,
                       cudaStream_t stream) {
  constexpr unsigned kBlocks = 16;  // for each of many inputs; a single one has more
  if (in.assignments == 0) return cudaSuccess;
  const dim3 grid(in.inputs == 1
                      ? static_cast<unsigned>((in.assignments + kRowsAtOnce - 1) / kRowsAtOnce)
                      : kBlocks,
                  static_cast<unsigned>(in.inputs));
  weigh_kernel<<<grid, kThreads, 0, stream>>>(in, scratch.row, to);
  return cudaGetLastError();
}

}  // namespace nibble::cuda
