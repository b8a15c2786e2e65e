// Operations of the vision tower on single rows: positions, layer norm, rotation. Bound: bytes.
#include "backend/cuda/ops/vision/vision.h"
#include "backend/cuda/ptx/bf16.cuh"
#include "backend/cuda/ptx/device_math.cuh"
#include "backend/cuda/runtime/launch.cuh"

namespace nibble::cuda {
namespace {

constexpr int kThreads = 256;

/// A place between two lines of the table.
struct Between {
  int low;
  int high;
  float share;  // of the higher one
};

/// Place `index` of `count` places spread evenly over lines 0 .. side - 1, as table_taps()
/// (model/vision.h) computes it.
__device__ Between between(int index, int count, int side) {
  const float at = __fdiv_rn(static_cast<float>(index) * static_cast<float>(side - 1),
                             static_cast<float>(count > 1 ? count - 1 : 1));
  const int low = static_cast<int>(at);
  return {low, low + 1 < side ? low + 1 : side - 1, at - static_cast<float>(low)};
}

/// A thread makes two numbers.
__global__ void levels_kernel(const VisionLevels in) {
  const auto row = static_cast<int64_t>(blockIdx.x);
  for (int c = 2 * static_cast<int>(threadIdx.x); c < in.stride; c += 2 * kThreads) {
    const auto number = [&](int column) {
      if (column >= 3 * in.each) return 0.0F;
      return in.values[column / in.each * 256 + in.levels[row * 3 * in.each + column]];
    };
    *reinterpret_cast<uint32_t*>(in.patches + row * in.stride + c) =
        to_bf16_pair(number(c), number(c + 1));
  }
}

/// A block orders 64 columns of each of its rows.
__global__ void pack_kernel(uint16_t* weight, int64_t rows, int cols) {
  const int lane = static_cast<int>(threadIdx.x) & 63;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / 64) + (threadIdx.x >> 6);
  uint16_t* block = weight + row * cols + static_cast<int64_t>(blockIdx.y) * 64;
  const uint16_t number = row < rows ? block[packed_position(lane)] : 0;
  __syncthreads();
  if (row < rows) block[lane] = number;
}

__global__ void scatter_kernel(const float* from, const int32_t* places, int width, float* to) {
  const auto row = static_cast<int64_t>(blockIdx.x);
  for (int c = static_cast<int>(threadIdx.x); c < width; c += kThreads)
    to[int64_t{places[row]} * width + c] = from[row * width + c];
}

/// A block makes one row.
__global__ void positions_kernel(const VisionPositions in) {
  const auto row = static_cast<int64_t>(blockIdx.x);
  const FramePlace place = in.places[row];
  const Between y = between(place.row, place.rows, in.side);
  const Between x = between(place.column, place.columns, in.side);
  const float* table = in.table;
  for (int c = static_cast<int>(threadIdx.x); c < in.width; c += kThreads) {
    const auto at = [&](int line, int column) {
      return table[int64_t{line * in.side + column} * in.width + c];
    };
    in.x[row * in.width + c] = (1.0F - y.share) * (1.0F - x.share) * at(y.low, x.low) +
                               (1.0F - y.share) * x.share * at(y.low, x.high) +
                               y.share * (1.0F - x.share) * at(y.high, x.low) +
                               y.share * x.share * at(y.high, x.high);
  }
}

__device__ float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step >>= 1) x += __shfl_xor_sync(0xFFFFFFFFU, x, step);
  return x;
}

/// A warp has one row, kept in registers between the passes over it.
template <int kPairs>
__global__ void norm_kernel(const VisionNorm in) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / 32) + (threadIdx.x >> 5);
  if (row >= in.rows) return;
  const float* from = in.x + row * in.width;
  float2 v[kPairs];
  float sum = 0.0F;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const int c = (i * 32 + lane) * 2;
    v[i] = c < in.width ? *reinterpret_cast<const float2*>(from + c) : make_float2(0.0F, 0.0F);
    sum += v[i].x + v[i].y;
  }
  const float mean = warp_sum(sum) / static_cast<float>(in.width);
  float squares = 0.0F;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    if ((i * 32 + lane) * 2 >= in.width) continue;
    squares += (v[i].x - mean) * (v[i].x - mean) + (v[i].y - mean) * (v[i].y - mean);
  }
  const float scale = rsqrtf(warp_sum(squares) / static_cast<float>(in.width) + in.epsilon);
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const int c = (i * 32 + lane) * 2;
    if (c >= in.stride) continue;
    uint32_t pair = 0;
    if (c < in.width)
      pair = to_bf16_pair((v[i].x - mean) * scale * in.weight[c] + in.bias[c],
                          (v[i].y - mean) * scale * in.weight[c + 1] + in.bias[c + 1]);
    *reinterpret_cast<uint32_t*>(in.out + row * in.stride + c) = pair;
  }
}

__global__ void turns_kernel(float2* turns, int places, int head_dim) {
  const int quarter = head_dim / 4;
  const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (i >= places * quarter) return;
  const float exponent = static_cast<float>(2 * (i % quarter)) / static_cast<float>(head_dim / 2);
  const float angle = static_cast<float>(i / quarter) / powf(10000.0F, exponent);
  sincosf(angle, &turns[i].y, &turns[i].x);
}

/// Rotates columns c .. c + 3 of each half of a head of q or k.
__device__ void rotate_part(const VisionRotate& in, FramePlace place, int c, const uint16_t* from,
                            uint16_t* to) {
  const int half = in.head_dim / 2;
  const int quarter = in.head_dim / 4;
  const uint2 low = *reinterpret_cast<const uint2*>(from + c);
  const uint2 high = *reinterpret_cast<const uint2*>(from + half + c);
  const auto turn = [&](int column) {
    return column < quarter ? in.turns[place.row * quarter + column]
                            : in.turns[place.column * quarter + column - quarter];
  };
  uint32_t turned[4];
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    const float2 first = turn(c + 2 * pair);
    const float2 second = turn(c + 2 * pair + 1);
    const uint32_t a = pair == 0 ? low.x : low.y;
    const uint32_t b = pair == 0 ? high.x : high.y;
    turned[pair] = to_bf16_pair(low_bf16(a) * first.x - low_bf16(b) * first.y,
                                high_bf16(a) * second.x - high_bf16(b) * second.y);
    turned[2 + pair] = to_bf16_pair(low_bf16(b) * first.x + low_bf16(a) * first.y,
                                    high_bf16(b) * second.x + high_bf16(a) * second.y);
  }
  *reinterpret_cast<uint2*>(to + c) = make_uint2(turned[0], turned[1]);
  *reinterpret_cast<uint2*>(to + half + c) = make_uint2(turned[2], turned[3]);
}

/// A thread has four columns of each half of a head, of q or k; eight of one of v, or of those that
/// are added.
__global__ void rotate_kernel(const VisionRotate in) {
  const int padded = padded_head(in.head_dim);
  const int parts = padded / 8;  // of a head
  const int each = 3 * in.heads * parts;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= int64_t{in.rows} * each) return;
  const int64_t row = i / each;
  const int line = static_cast<int>(i % each) / parts;
  const int c = static_cast<int>(i % each) % parts * 8;
  const uint16_t* from = in.qkv + (row * 3 * in.heads + line) * in.head_dim;
  uint16_t* to = in.out + (line * in.out_rows + in.row_begin + row) * padded;
  if (c < in.head_dim && line < 2 * in.heads)
    return rotate_part(in, in.places[row], c / 2, from, to);
  uint4 copied = make_uint4(0, 0, 0, 0);
  if (c < in.head_dim) copied = *reinterpret_cast<const uint4*>(from + c);
  *reinterpret_cast<uint4*>(to + c) = copied;
}

using NormKernel = void (*)(VisionNorm);
/// Widths of up to 512, 1,280 and 2,048.
NormKernel norm_of(int64_t stride) {
  if (stride <= 512) return norm_kernel<8>;
  return stride <= 1280 ? norm_kernel<20> : norm_kernel<32>;
}

}  // namespace

void vision_prepare(const Launcher& launcher) {
  prepare_vision_gemm(launcher);
  prepare_vision_attention(launcher);
  launcher.device->allow_shared(levels_kernel, 0);
  launcher.device->allow_shared(positions_kernel, 0);
  launcher.device->allow_shared(rotate_kernel, 0);
  launcher.device->allow_shared(turns_kernel, 0);
  launcher.device->allow_shared(scatter_kernel, 0);
  for (const int64_t stride : {512, 1280, 2048}) launcher.device->allow_shared(norm_of(stride), 0);
}

void vision_positions(const VisionPositions& positions, const Launcher& launcher) {
  if (positions.rows == 0) return;
  launch(positions_kernel, launcher.in_order(), static_cast<unsigned>(positions.rows), kThreads, 0,
         positions);
}

void vision_norm(const VisionNorm& norm, const Launcher& launcher) {
  if (norm.rows == 0) return;
  CHECK(norm.stride <= 2048 && norm.stride >= norm.width && norm.width % 2 == 0 &&
            norm.stride % 2 == 0,
        norm.width, " columns at ", norm.stride);
  constexpr int kRows = kThreads / 32;
  launch(norm_of(norm.stride), launcher.in_order(),
         static_cast<unsigned>((norm.rows + kRows - 1) / kRows), kThreads, 0, norm);
}

void vision_levels(const VisionLevels& levels, const Launcher& launcher) {
  if (levels.rows == 0) return;
  CHECK(levels.stride % 2 == 0 && levels.stride >= 3 * levels.each, levels.stride, " columns");
  launch(levels_kernel, launcher.in_order(), static_cast<unsigned>(levels.rows), kThreads, 0,
         levels);
}

void vision_pack(uint16_t* weight, int64_t rows, int32_t cols, const Launcher& launcher) {
  constexpr int kRows = kThreads / 64;
  CHECK(cols % 64 == 0, cols, " columns");
  launch(pack_kernel, launcher.in_order(),
         dim3(static_cast<unsigned>((rows + kRows - 1) / kRows), static_cast<unsigned>(cols / 64)),
         kThreads, 0, weight, rows, cols);
}

void pack_vision(const VisionWeights& tower, const Launcher& launcher) {
  if (!tower.present()) return;
  each_matrix(tower, [&](const BiasedWeights& linear) {
    auto* values = reinterpret_cast<uint16_t*>(const_cast<uint8_t*>(linear.weight.values));
    vision_pack(values, linear.weight.rows, linear.weight.cols, launcher);
  });
  CUDA_CHECK(cudaStreamSynchronize(launcher.stream));
}

void vision_scatter(const float* from, const int32_t* places, int32_t width, int32_t rows,
                    float* to, const Launcher& launcher) {
  if (rows == 0) return;
  launch(scatter_kernel, launcher.in_order(), static_cast<unsigned>(rows), kThreads, 0, from,
         places, width, to);
}

void vision_turns(float2* turns, int32_t places, int32_t head_dim, const Launcher& launcher) {
  const int count = places * (head_dim / 4);
  launch(turns_kernel, launcher.in_order(),
         static_cast<unsigned>((count + kThreads - 1) / kThreads), kThreads, 0, turns, places,
         head_dim);
}

void vision_rotate(const VisionRotate& rotate, const Launcher& launcher) {
  if (rotate.rows == 0) return;
  CHECK(rotate.head_dim % 8 == 0, rotate.head_dim, " columns of a head");
  const int64_t parts =
      int64_t{rotate.rows} * 3 * rotate.heads * (padded_head(rotate.head_dim) / 8);
  launch(rotate_kernel, launcher.in_order(),
         static_cast<unsigned>((parts + kThreads - 1) / kThreads), kThreads, 0, rotate);
}

}  // namespace nibble::cuda
