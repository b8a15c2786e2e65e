// GPTQ's error feedback: within a panel of 64 columns row by row, half a warp each; then the
// panel's errors are taken off the columns after it in one product; in the end the gradient is
// another. Each element meets its terms in the order of the columns, as in gptq_feedback.inl.h.
// Bound: FLOPs, N K^2/2 multiplications and as many subtractions in F32, not fused; the gradient
// the same again.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "backend/cuda/ops/gptq/gptq.h"
#include "backend/cuda/ops/gptq/gptq_parts.cuh"

namespace nibble::cuda {
namespace {

constexpr int kPanel = 64;
constexpr int kPitch = kPanel + 4;  // 16-byte aligned
constexpr int kThreads = 256;
constexpr int kPanelRows = kThreads / 16;

// ---- rows ----

__device__ float weight_at(const GptqRows& in, int64_t at) {
  if (in.dtype == DType::f32) return static_cast<const float*>(in.weights)[at];
  if (in.dtype == DType::f16) return __half2float(static_cast<const __half*>(in.weights)[at]);
  return __bfloat162float(static_cast<const __nv_bfloat16*>(in.weights)[at]);
}

__global__ __launch_bounds__(kThreads) void load_kernel(GptqInput input, GptqRows in) {
  const int k = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  const int row = static_cast<int>(blockIdx.y);
  if (k >= input.cols) return;
  const int from = input.order[k / 16] * 16 + k % 16;
  const int exponent = in.exponents == nullptr ? in.exponent : in.exponents[row];
  in.u[int64_t{row} * input.cols + k] =
      weight_at(in, int64_t{row} * input.cols + from) * ldexpf(1.0F, -exponent);
}

// ---- scales ----

/// Sum of weight e^2 of a block under the code of this lane. exact, weight: of this lane's column.
__device__ float code_errors(const HalfWarp& half, float exact, float weight, int code) {
  const float scale = kScaleTables.scale[code], reciprocal = kScaleTables.reciprocal[code];
  float errors = 0.0F;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const float u = half.from(exact, i);
    const float error = u - nearest_magnitude(u * reciprocal) * scale;
    errors += error * error * half.from(weight, i);
  }
  return errors;
}

/// The error of saturated weights alone.
__device__ float saturation_loss(const HalfWarp& half, float exact, float weight, int code) {
  const float scale = kScaleTables.scale[code];
  float loss = 0.0F;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const float over = half.from(exact, i) - 6.0F * scale;
    if (over > 0.0F) loss += over * over * half.from(weight, i);
  }
  return loss;
}

/// The code of a block's scale with the least weighted error: diagonal_code of
/// weighted_block.inl.h.
__device__ int search_code(const HalfWarp& half, float u, float weight, bool& zero) {
  const int magnitude = __float_as_int(u) & 0x7FFFFFFF;
  const float amax = __int_as_float(-half.least(-magnitude));
  zero = amax == 0.0F;
  const float exact = __int_as_float(magnitude & 0x7FFFFFF0);
  const int first = first_scale_code(amax);
  float errors = code_errors(half, exact, weight, first + half.lane);
  int found = half.least_lane(errors);
  int best = first + found;
  float least = half.from(errors, found);
  for (int top = first - 1; top >= 1; top -= 16) {
    if (saturation_loss(half, exact, weight, top) > least) break;
    const int low = max(top - 15, 1);
    errors = code_errors(half, exact, weight, low + half.lane);
    found = half.least_lane(errors);
    const float lower = half.from(errors, found);
    if (lower > least) continue;  // of a tie the lower code
    least = lower;
    best = low + found;
  }
  return best;
}

/// A finite number to the nearest E4M3 code: finite_to_e4m3 of float_formats.h.
__device__ unsigned e4m3_code(float x) {
  const unsigned bits = __float_as_uint(x);
  const float magnitude = fminf(__uint_as_float(bits & 0x7FFFFFFFU), 448.0F);
  const unsigned exponent = max(__float_as_uint(magnitude) >> 23, 121U);
  const float anchor = __uint_as_float((exponent + 20) << 23);
  const float rounded = (magnitude + anchor) - anchor;
  const unsigned code = rounded >= 0x1p-6F ? (__float_as_uint(rounded) >> 20) - (120U << 3)
                                           : static_cast<unsigned>(rounded * 512.0F);
  return (bits >> 24 & 0x80U) | code;
}

__device__ float e4m3_value(unsigned code) {
  const float magnitude = kScaleTables.scale[code & 0x7FU];
  return (code & 0x80U) != 0 ? -magnitude : magnitude;
}

// ---- feedback within a panel ----

/// A block of 16 columns of one row, a lane each. `factors`: the panel's, from the block's first
/// row and column on. quantise(x, j) gives what x, column j, becomes.
template <typename Quantise>
__device__ void feed_back(const HalfWarp& half, const float* factors, float& u, float& error,
                          Quantise quantise) {
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    const float x = half.from(u, j);
    const float rounded = quantise(x, j);
    const float lost = (x - rounded) / factors[j * kPitch + j];
    if (half.lane == j) {
      u = rounded;
      error = lost;
    }
    if (half.lane > j) u -= lost * factors[j * kPitch + half.lane];
  }
}

enum class Codes : uint8_t { nvfp4, fp8 };

template <Codes kCodes>
__device__ void round_block(const HalfWarp& half, const GptqInput& input, const GptqRows& in,
                            int64_t row, int column, const float* factors, float& u, float& error) {
  const int place = input.order[column / 16];
  if (kCodes == Codes::fp8) {
    const float scale = in.fp8_scales[row * (input.cols / 16) + column / 16];
    uint8_t* codes = in.codes + row * input.cols + place * 16;
    feed_back(half, factors, u, error, [&](float x, int j) {
      const unsigned code = e4m3_code(x / scale + 0.0F);
      if (half.lane == j) codes[j] = static_cast<uint8_t>(code);
      return e4m3_value(code) * scale;
    });
    return;
  }
  bool zero = false;
  const int code = search_code(half, u, input.costs[column + half.lane], zero);
  const float scale = kScaleTables.scale[code];
  feed_back(half, factors, u, error,
            [&](float x, int) { return nearest_value(x, fabsf(x) / scale, scale); });
  constexpr int kZeroBlockScale = 0x38;  // nvfp4_round.h
  if (half.lane == 0)
    in.scales[row * (input.cols / 16) + place] =
        static_cast<uint8_t>(zero ? kZeroBlockScale : code);
}

template <Codes kCodes>
__global__ __launch_bounds__(kThreads) void panel_kernel(GptqInput input, GptqRows in, int first) {
  __shared__ float factors[kPanel * kPitch];
  const int width = min(kPanel, input.cols - first);
  for (int at = static_cast<int>(threadIdx.x); at < width * kPanel; at += kThreads) {
    const int i = at / kPanel, j = at % kPanel;
    if (j < width)
      factors[i * kPitch + j] = input.factors[int64_t{first + i} * input.cols + first + j];
  }
  __syncthreads();
  const HalfWarp half;
  const int64_t row = int64_t{blockIdx.x} * kPanelRows + threadIdx.x / 16;
  if (row >= in.rows) return;
  float u[kPanel / 16], error = 0.0F;
  float* const from = in.u + row * input.cols + first + half.lane;
  float* const errors = in.errors + row * input.cols + first + half.lane;
#pragma unroll
  for (int block = 0; block < kPanel / 16; ++block)
    u[block] = block * 16 < width ? from[block * 16] : 0.0F;
#pragma unroll
  for (int block = 0; block < kPanel / 16; ++block) {
    const int column = block * 16;
    if (column >= width) break;
    const float* rows = factors + column * kPitch;
    round_block<kCodes>(half, input, in, row, first + column, rows + column, u[block], error);
#pragma unroll
    for (int later = block + 1; later < kPanel / 16; ++later)
#pragma unroll
      for (int j = 0; j < 16; ++j)
        u[later] -= rows[j * kPitch + later * 16 + half.lane] * half.from(error, j);
    from[column] = u[block];
    errors[column] = error;
  }
}

// ---- products ----

/// 64 rows x 64 columns of sums, 4 x 4 a thread.
struct SumTile {
  float sum[4][4];
  int row = static_cast<int>(threadIdx.x) / 16 * 4;
  int col = static_cast<int>(threadIdx.x) % 16 * 4;

  /// Takes off the products of `terms` errors [term, row] and factors [term, column], in order.
  __device__ void subtract(const float* errors, const float* factors, int terms) {
#pragma unroll 4
    for (int j = 0; j < terms; ++j) {
      const float4 e = *reinterpret_cast<const float4*>(errors + j * kPitch + row);
      const float4 f = *reinterpret_cast<const float4*>(factors + j * kPitch + col);
      const float x[4] = {e.x, e.y, e.z, e.w};
      const float y[4] = {f.x, f.y, f.z, f.w};
#pragma unroll
      for (int r = 0; r < 4; ++r)
#pragma unroll
        for (int c = 0; c < 4; ++c) sum[r][c] -= y[c] * x[r];
    }
  }
};

/// Errors of 64 rows from column `first` on, [term, row]; zeros beyond the last row.
__device__ void load_errors(const GptqInput& input, const GptqRows& in, int64_t top, int first,
                            float* errors) {
  for (int at = static_cast<int>(threadIdx.x); at < kPanel * kPanel; at += kThreads) {
    const int row = at / kPanel, j = at % kPanel;
    const bool there = top + row < in.rows && first + j < input.cols;
    errors[j * kPitch + row] = there ? in.errors[(top + row) * input.cols + first + j] : 0.0F;
  }
}

/// Takes the errors of the panel from `first` on off the columns after it.
__global__ __launch_bounds__(kThreads) void spread_kernel(GptqInput input, GptqRows in, int first) {
  __shared__ __align__(16) float errors[kPanel * kPitch];
  __shared__ __align__(16) float factors[kPanel * kPitch];
  const int64_t top = int64_t{blockIdx.y} * kPanel;
  const int left = first + kPanel + static_cast<int>(blockIdx.x) * kPanel;
  load_errors(input, in, top, first, errors);
  for (int at = static_cast<int>(threadIdx.x); at < kPanel * kPanel; at += kThreads) {
    const int j = at / kPanel, c = at % kPanel;
    if (left + c < input.cols)
      factors[j * kPitch + c] = input.factors[int64_t{first + j} * input.cols + left + c];
  }
  __syncthreads();
  SumTile tile;
  float* u = in.u + (top + tile.row) * input.cols + left + tile.col;
  if (left + tile.col >= input.cols) return;  // columns come in fours
  for (int r = 0; r < 4; ++r)
    for (int c = 0; c < 4; ++c)
      tile.sum[r][c] = top + tile.row + r < in.rows ? u[int64_t{r} * input.cols + c] : 0.0F;
  tile.subtract(errors, factors, kPanel);
  for (int r = 0; r < 4; ++r)
    for (int c = 0; c < 4; ++c)
      if (top + tile.row + r < in.rows) u[int64_t{r} * input.cols + c] = tile.sum[r][c];
}

__global__ __launch_bounds__(kThreads) void gradient_kernel(GptqInput input, GptqRows in) {
  __shared__ __align__(16) float errors[kPanel * kPitch];
  __shared__ __align__(16) float factors[kPanel * kPitch];
  const int64_t top = int64_t{blockIdx.y} * kPanel;
  const int left = static_cast<int>(blockIdx.x) * kPanel;
  SumTile tile;
  const int64_t row = top + tile.row;
  const int col = left + tile.col;
  for (int r = 0; r < 4; ++r)
    for (int c = 0; c < 4; ++c) {
      const bool there = row + r < in.rows && col + c < input.cols;
      const int64_t at = int64_t{col + c} * input.cols + col + c;
      tile.sum[r][c] =
          there ? -(in.errors[(row + r) * input.cols + col + c] / input.factors[at]) : 0.0F;
    }
  for (int first = left; first < input.cols; first += kPanel) {
    const int width = min(kPanel, input.cols - first);
    load_errors(input, in, top, first, errors);
    for (int at = static_cast<int>(threadIdx.x); at < width * kPanel; at += kThreads) {
      const int j = at / kPanel, c = at % kPanel;
      const bool below = first + j > left + c;  // M^T
      factors[j * kPitch + c] =
          below ? input.factors[int64_t{first + j} * input.cols + left + c] : 0.0F;
    }
    __syncthreads();
    tile.subtract(errors, factors, width);
    __syncthreads();
  }
  for (int r = 0; r < 4; ++r)
    for (int c = 0; c < 4; ++c)
      if (row + r < in.rows && col + c < input.cols)
        in.gradient[(row + r) * input.cols + col + c] = tile.sum[r][c];
}

// ---- codes ----

__global__ __launch_bounds__(kThreads) void encode_kernel(GptqInput input, GptqRows in) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int blocks = input.cols / 16;
  if (at >= int64_t{in.rows} * blocks) return;
  const int64_t row = at / blocks;
  const int block = static_cast<int>(at % blocks);
  const int place = input.order[block];
  const float scale = kScaleTables.scale[in.scales[row * blocks + place]];
  const float* u = in.u + row * input.cols + block * 16;
  uint32_t words[2] = {};
  for (int i = 0; i < 16; ++i) words[i / 8] |= element_code(u[i], scale) << (i % 8 * 4);
  auto* codes = reinterpret_cast<uint32_t*>(in.codes + row * (input.cols / 2) + place * 8);
  codes[0] = words[0];
  codes[1] = words[1];
}

template <Codes kCodes>
cudaError_t feed_back_rows(const GptqInput& input, const GptqRows& in, cudaStream_t stream) {
  const unsigned groups = blocks_for(in.rows, kPanelRows);
  for (int first = 0; first < input.cols; first += kPanel) {
    panel_kernel<kCodes><<<groups, kThreads, 0, stream>>>(input, in, first);
    const int left = input.cols - first - kPanel;
    if (left <= 0) break;
    const dim3 grid(blocks_for(left, kPanel), blocks_for(in.rows, kPanel));
    spread_kernel<<<grid, kThreads, 0, stream>>>(input, in, first);
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t gptq_load(const GptqInput& input, const GptqRows& in, cudaStream_t stream) {
  const dim3 grid(blocks_for(input.cols, kThreads), static_cast<unsigned>(in.rows));
  load_kernel<<<grid, kThreads, 0, stream>>>(input, in);
  return cudaGetLastError();
}

cudaError_t gptq_feed_back(const GptqInput& input, const GptqRows& in, cudaStream_t stream) {
  return feed_back_rows<Codes::nvfp4>(input, in, stream);
}

cudaError_t gptq_feed_back_fp8(const GptqInput& input, const GptqRows& in, cudaStream_t stream) {
  return feed_back_rows<Codes::fp8>(input, in, stream);
}

cudaError_t gptq_gradient(const GptqInput& input, const GptqRows& in, cudaStream_t stream) {
  const dim3 grid(blocks_for(input.cols, kPanel), blocks_for(in.rows, kPanel));
  gradient_kernel<<<grid, kThreads, 0, stream>>>(input, in);
  return cudaGetLastError();
}

cudaError_t gptq_encode(const GptqInput& input, const GptqRows& in, cudaStream_t stream) {
  const unsigned blocks = blocks_for(int64_t{in.rows} * (input.cols / 16), kThreads);
  encode_kernel<<<blocks, kThreads, 0, stream>>>(input, in);
  return cudaGetLastError();
}

}  // namespace nibble::cuda
