// A thread has eight places of a row's high part and the same ones of its low part; a block has 64
// x 64 numbers of a matrix. Bound: bytes, each operand read and written once.
#include "backend/cuda/ops/gradient/gradient_operands.h"
#include "backend/cuda/ops/gradient/gradient_parts.cuh"
#include "backend/cuda/ptx/bf16.cuh"
#include "backend/cuda/runtime/device_memory.h"

namespace nibble::cuda {
namespace {

constexpr int kEight = 8;

__global__ __launch_bounds__(kRowThreads) void split_kernel(RowsToSplit rows, uint16_t* to) {
  const int64_t i = thread_index();
  const int each = rows.padded / kEight;
  const int64_t row = i / each;
  if (row >= rows.rows) return;
  const int place = static_cast<int>(i % each) * kEight;
  const float* x = rows.x + row * rows.cols;
  uint32_t high[4], low[4];
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    float v[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int column = packed_column(place + 2 * pair + e);
      v[e] = column < rows.cols ? x[column] : 0.0F;
    }
    high[pair] = to_bf16_pair(v[0], v[1]);
    low[pair] = to_bf16_pair(v[0] - low_bf16(high[pair]), v[1] - high_bf16(high[pair]));
  }
  uint16_t* out = to + row * 2 * rows.padded + place;
  *reinterpret_cast<uint4*>(out) = make_uint4(high[0], high[1], high[2], high[3]);
  *reinterpret_cast<uint4*>(out + rows.padded) = make_uint4(low[0], low[1], low[2], low[3]);
}

constexpr int kSide = 64;  // numbers of a block's square
static_assert(kSide == kStepColumns);

/// blockIdx.x counts columns of the matrix, y its rows, z the matrices.
__global__ __launch_bounds__(kRowThreads) void transpose_kernel(MatrixToTranspose m, uint16_t* to) {
  __shared__ uint16_t square[kSide][kSide + 2];  // [row][column] of the matrix
  const int padded = step_columns(m.weight.rows);
  const int row0 = static_cast<int>(blockIdx.y) * kSide;
  const int column0 = static_cast<int>(blockIdx.x) * kSide;
  const int64_t matrix = blockIdx.z;
  const uint16_t* from = reinterpret_cast<const uint16_t*>(m.weight.values) +
                         matrix * m.weight.rows * m.weight.cols + column0;
  for (int i = static_cast<int>(threadIdx.x); i < kSide * kSide / 2; i += kRowThreads) {
    const int row = i / (kSide / 2), pair = i % (kSide / 2);
    uint32_t v = 0;
    if (row0 + row < m.weight.rows)  // the matrix has columns of zeros up to a multiple of 256
      v = *reinterpret_cast<const uint32_t*>(from + int64_t{row0 + row} * m.weight.cols + 2 * pair);
    *reinterpret_cast<uint32_t*>(&square[row][2 * pair]) = v;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kSide * kSide / 2; i += kRowThreads) {
    const int column = i / (kSide / 2), pair = i % (kSide / 2);
    if (column0 + column >= m.cols) continue;
    const uint32_t low = square[2 * pair][column], high = square[2 * pair + 1][column];
    uint16_t* line = to + (matrix * m.cols + column0 + column) * padded + row0;
    *reinterpret_cast<uint32_t*>(line + 2 * pair) = low | high << 16;
  }
}

}  // namespace

cudaError_t split_rows(const RowsToSplit& rows, uint16_t* to, cudaStream_t stream) {
  if (rows.rows == 0) return cudaSuccess;
  if (rows.padded < rows.cols || rows.padded % kStepColumns != 0) return cudaErrorInvalidValue;
  split_kernel<<<blocks_of_threads(int64_t{rows.rows} * (rows.padded / kEight)), kRowThreads, 0,
                 stream>>>(rows, to);
  return cudaGetLastError();
}

DeviceLinear transpose_matrices(const MatrixToTranspose& matrix, uint8_t* to, cudaStream_t stream) {
  const DeviceLinear& w = matrix.weight;
  CHECK(w.format == Format::bf16 && step_columns(matrix.cols) <= w.cols, w.rows, " x ", w.cols);
  const dim3 grid(static_cast<unsigned>(step_columns(matrix.cols) / kSide),
                  static_cast<unsigned>(step_columns(w.rows) / kSide),
                  static_cast<unsigned>(matrix.stack));
  transpose_kernel<<<grid, kRowThreads, 0, stream>>>(matrix, reinterpret_cast<uint16_t*>(to));
  CUDA_CHECK(cudaGetLastError());
  DeviceLinear out;
  out.values = to;
  out.rows = matrix.cols;
  out.cols = step_columns(w.rows);
  return out;
}

}  // namespace nibble::cuda
