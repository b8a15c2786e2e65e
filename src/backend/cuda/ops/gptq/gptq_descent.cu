// Coordinate descent over rows that GPTQ has rounded, as gptq_descent.inl.h does it: half a warp
// has a row, whose gradient lies in shared memory, and walks over its blocks; the next block's part
// of H and V is on its way meanwhile. Bound: operations of trying 16 scales, and the rows of H that
// changes add to the gradient, from L2.
#include "backend/cuda/ops/gptq/gptq.h"
#include "backend/cuda/ops/gptq/gptq_parts.cuh"
#include "backend/cuda/runtime/device_context.h"

namespace nibble::cuda {
namespace {

constexpr float kMargin = 0x1p-8F;     // kDescentMargin
constexpr int kScaleSweeps = 2;        // as there
constexpr int kStageFloats = 2 * 256;  // V and the block of H
constexpr int kWarpsMax = 8;
constexpr int64_t kSharedAim = 56 << 10;  // four thread blocks on an SM

struct Block {
  const float* v;  // [16, 16]
  const float* h;  // [16, 16]
  float q, g;      // of this lane's column
};

__device__ bool is_gain(float slope, float cost) { return -2.0F * slope - cost > kMargin * cost; }

/// q - V^T V g, of this lane's column.
__device__ float block_target(const HalfWarp& half, const Block& block) {
  float sum = 0.0F;  // of row `lane` of V
#pragma unroll
  for (int k = 0; k < 16; ++k) sum += block.v[half.lane * 16 + k] * half.from(block.g, k);
  float target = block.q;
#pragma unroll
  for (int i = 0; i < 16; ++i) target -= half.from(sum, i) * block.v[i * 16 + half.lane];
  return target;
}

/// The block under the scale of this lane: weights in t become what they are rounded to. The loss.
__device__ float round_under_scale(const HalfWarp& half, const float* v, int code, float* t) {
  const float scale = kScaleTables.scale[code], reciprocal = kScaleTables.reciprocal[code];
  const float inverse = 1.0F / v[half.lane * 17];
  float loss = 0.0F;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const float q = nearest_value(t[i], fabsf(t[i]) * reciprocal, scale);
    const float error = (t[i] - q) * half.from(inverse, i);
    loss += error * error;
#pragma unroll
    for (int k = i + 1; k < 16; ++k) t[k] -= error * v[i * 16 + k];
    t[i] = q;
  }
  return loss;
}

/// Moves the block to q if that lowers the loss.
__device__ bool move_block(const HalfWarp& half, Block& block, float q) {
  const float delta = q - block.q;
  float change = 0.0F, slope = 0.0F, cost = 0.0F;
#pragma unroll
  for (int j = 0; j < 16; ++j) change += half.from(delta, j) * block.h[j * 16 + half.lane];
  const float slopes = delta * block.g, costs = delta * change;
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    slope += half.from(slopes, j);
    cost += half.from(costs, j);
  }
  if (!is_gain(slope, cost)) return false;
  block.q = q;
  block.g += change;
  return true;
}

/// The best of 16 scale codes with its weights; the same one if none gains.
__device__ int descend_scale(const HalfWarp& half, Block& block, int code) {
  const float target = block_target(half, block);
  float t[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) t[i] = half.from(target, i);
  const int low = max(code - 8, 1);
  const float loss = round_under_scale(half, block.v, low + half.lane, t);
  const int lane = half.least_lane(loss);
  float q = 0.0F;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const float rounded = half.from(t[i], lane);
    if (half.lane == i) q = rounded;
  }
  return move_block(half, block, q) ? low + lane : code;
}

/// Each weight in turn becomes the best, given the others.
__device__ void descend_codes(const HalfWarp& half, Block& block, float scale) {
  const float h = block.h[half.lane * 17];
  for (int from = 0; from < 16;) {
    const float optimum = block.q - block.g / h;
    const float best = nearest_value(optimum, fabsf(optimum) / scale, scale);
    const float delta = best - block.q;
    const float cost = delta * delta * h;
    const bool gain = -2.0F * (delta * block.g) - cost > kMargin * cost && half.lane >= from;
    const unsigned gains = half.votes(gain);
    if (gains == 0) return;
    const int j = __ffs(static_cast<int>(gains)) - 1;
    const float change = half.from(delta, j);
    if (half.lane == j) block.q += change;
    block.g += change * block.h[j * 16 + half.lane];
    from = j + 1;
  }
}

/// A warp reads V and the block of H of one block of columns ahead, 16 floats a lane.
struct Stage {
  float4 part[4];

  __device__ void load(const GptqInput& in, int column) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const auto* v = reinterpret_cast<const float4*>(in.block_factors + column * 16);
    part[0] = v[lane];
    part[1] = v[lane + 32];
    for (int i = 0; i < 2; ++i) {
      const int64_t row = column + lane / 4 + i * 8;
      part[2 + i] = *reinterpret_cast<const float4*>(in.h + row * in.cols + column + lane % 4 * 4);
    }
  }
  __device__ void store(float* to) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int i = 0; i < 4; ++i) reinterpret_cast<float4*>(to)[lane + 32 * i] = part[i];
  }
};

/// Adds to a row's gradient the sum over the changed columns, in order, of change times H's row.
__device__ void add_changes(const HalfWarp& half, const GptqInput& in, int column, float delta,
                            unsigned changed, float* gradient) {
  for (; changed != 0; changed &= changed - 1) {
    const int j = __ffs(static_cast<int>(changed)) - 1;
    const float factor = half.from(delta, j);
    const auto* h = reinterpret_cast<const float4*>(in.h + int64_t{column + j} * in.cols);
    auto* sums = reinterpret_cast<float4*>(gradient);
#pragma unroll 8
    for (int k = half.lane; k < in.cols / 4; k += 16) {
      const float4 row = h[k];
      float4 sum = sums[k];
      sum.x += row.x * factor;
      sum.y += row.y * factor;
      sum.z += row.z * factor;
      sum.w += row.w * factor;
      sums[k] = sum;
    }
  }
  half.sync();
}

struct Row {
  float* u;         // [K]
  uint8_t* scales;  // [K/16]
  float* gradient;  // [K], shared memory
};

/// True if the block from `column` on changed.
__device__ bool descend_block(const HalfWarp& half, const GptqInput& in, const Row& row, int column,
                              const float* stage, bool scales) {
  float& u = row.u[column + half.lane];
  uint8_t& scale = row.scales[in.order[column / 16]];
  Block block{.v = stage, .h = stage + 256, .q = u, .g = row.gradient[column + half.lane]};
  const float before = block.q;
  int code = scale;
  if (scales) code = descend_scale(half, block, code);
  descend_codes(half, block, kScaleTables.scale[code]);
  const float delta = block.q - before;
  const unsigned changed = half.votes(delta != 0.0F);
  if (changed == 0) return false;
  if (half.lane == 0) scale = static_cast<uint8_t>(code);
  u = block.q;
  add_changes(half, in, column, delta, changed, row.gradient);
  return true;
}

__global__ __launch_bounds__(kWarpsMax * 32) void descend_kernel(GptqInput in, GptqRows rows,
                                                                 int sweeps) {
  extern __shared__ __align__(16) float shared[];
  const HalfWarp half;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int slot = static_cast<int>(threadIdx.x) / 16;
  const int64_t index = int64_t{blockIdx.x} * warps * 2 + slot;
  float* stage = shared + slot / 2 * kStageFloats;
  const Row row{.u = rows.u + index * in.cols,
                .scales = rows.scales + index * (in.cols / 16),
                .gradient = shared + warps * kStageFloats + slot * in.cols};
  bool active = index < rows.rows;
  if (active)
    for (int k = half.lane; k < in.cols; k += 16)
      row.gradient[k] = rows.gradient[index * in.cols + k];
  Stage next;
  next.load(in, 0);
  for (int sweep = 0; sweep < sweeps; ++sweep) {
    if (__any_sync(0xFFFFFFFFU, active) == 0) return;
    bool changed = false;
    for (int column = 0; column < in.cols; column += 16) {
      __syncwarp();
      next.store(stage);
      next.load(in, column + 16 < in.cols ? column + 16 : 0);
      __syncwarp();
      if (active && descend_block(half, in, row, column, stage, sweep < kScaleSweeps))
        changed = true;
    }
    active = active && changed;
  }
}

/// Rows of a thread block: as many as leave room for others on the SM, at least one warp's.
int warps_for(int64_t cols) {
  const int64_t each = 4 * (2 * cols + kStageFloats);
  const int64_t fit = kSharedAim / each;
  return static_cast<int>(fit < 1 ? 1 : fit > kWarpsMax ? kWarpsMax : fit);
}

int64_t shared_for(int64_t cols) { return warps_for(cols) * 4 * (2 * cols + kStageFloats); }

}  // namespace

void gptq_prepare_factor(DeviceContext& device);

void gptq_prepare(DeviceContext& device) {
  gptq_prepare_factor(device);
  device.allow_shared(descend_kernel, device.facts().shared_bytes);
}

int64_t gptq_columns_max(int64_t shared_bytes) {
  return (shared_bytes / 4 - kStageFloats) / 2 / 16 * 16;
}

cudaError_t gptq_descend(const GptqInput& input, const GptqRows& rows, int sweeps,
                         cudaStream_t stream) {
  const int warps = warps_for(input.cols);
  const auto shared = static_cast<size_t>(shared_for(input.cols));
  const unsigned groups = blocks_for(rows.rows, 2 * warps);
  descend_kernel<<<groups, static_cast<unsigned>(warps * 32), shared, stream>>>(input, rows,
                                                                                sweeps);
  return cudaGetLastError();
}

}  // namespace nibble::cuda
