// The splits of each row and head of generation attention added in order, divided and gated. Bound:
// the bytes of the partial results, which attend.cu left in the L2.
#include "backend/cuda/ops/attention/attend_splits.cuh"
#include "backend/cuda/runtime/launch.cuh"

namespace nibble::cuda {
namespace {

constexpr int kGroups = 4;  // that share the splits of a row: p % 4
constexpr int kThreads = 256;
constexpr int kAhead = 8;  // splits of a group asked for at once
static_assert(kThreads >= kHeadDimMax && kThreads / kGroups * 4 >= kHeadDimMax);

/// The weights of the splits of a row and their total, by one warp.
__device__ __forceinline__ void weigh_splits(const AttentionArgs& a, uint8_t* first, int splits,
                                             float* weights, float* total) {
  constexpr int kOfLane = kAttendSplitsMax / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float2 of[kOfLane];  // maximum, total
  float top = -INFINITY;
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) {
    const int p = lane + 32 * k;
    of[k] = p < splits ? *partial_weights(a, first + p * attend_partial_bytes(a.head_dim))
                       : make_float2(-INFINITY, 0.0F);
  }
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) top = fmaxf(top, of[k].x);
  top = warp_max(top);
  float sum = 0.0F;
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) {
    const int p = lane + 32 * k;
    const float weight = p < splits ? exp2f(of[k].x - top) * of[k].y : 0.0F;
    weights[p] = weight;
    sum += weight;
  }
  sum = warp_sum(sum);
  if (lane == 0) *total = sum;
}

/// A block computes one head of one row.
__global__ void __launch_bounds__(kThreads)
    combine_kernel(const __grid_constant__ AttentionArgs a, int row_begin) {
  __shared__ float weights[kAttendSplitsMax];
  __shared__ float total;
  __shared__ __align__(16) float sums[kGroups][kHeadDimMax];
  touch(a);
  const int head = static_cast<int>(blockIdx.x);
  const int row = row_begin + static_cast<int>(blockIdx.y);
  const int tokens = a.batch.kv_index[row] + 1;
  const int splits = split_count(tokens);
  uint8_t* first = partial_at(a, static_cast<int>(blockIdx.y), head, 0);
  const int64_t stride = attend_partial_bytes(a.head_dim);
  const auto thread = static_cast<int>(threadIdx.x);
  const int group = thread / (kThreads / kGroups);
  const int d = thread % (kThreads / kGroups) * 4;
  wait_for_inputs();
  if (tokens == 0) return;
  const auto load = [&](int p) {
    return p < splits && d < a.head_dim ? reinterpret_cast<const uint2*>(first + p * stride)[d / 4]
                                        : make_uint2(0, 0);
  };
  uint2 x[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) x[i] = load(group + kGroups * i);
  const float* gate =
      a.q + (static_cast<int64_t>(row) * a.q_heads + head) * 2 * a.head_dim + a.head_dim;
  const float gate_logit = a.output_gate && thread < a.head_dim ? gate[thread] : 0.0F;
  if (thread < 32) weigh_splits(a, first, splits, weights, &total);
  __syncthreads();
  float4 sum = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
#pragma unroll 1
  for (int begin = group; begin < splits; begin += kGroups * kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int p = begin + kGroups * i;
      const float weight = p < splits ? weights[p] : 0.0F;
      const float2 low = __half22float2(*reinterpret_cast<const __half2*>(&x[i].x));
      const float2 high = __half22float2(*reinterpret_cast<const __half2*>(&x[i].y));
      sum.x = fmaf(weight, low.x, sum.x);
      sum.y = fmaf(weight, low.y, sum.y);
      sum.z = fmaf(weight, high.x, sum.z);
      sum.w = fmaf(weight, high.y, sum.w);
      x[i] = load(p + kGroups * kAhead);
    }
  }
  if (d < a.head_dim) *reinterpret_cast<float4*>(&sums[group][d]) = sum;
  __syncthreads();
  if (thread >= a.head_dim) return;
  float out = sums[0][thread];
#pragma unroll
  for (int k = 1; k < kGroups; ++k) out += sums[k][thread];
  out = out / total * a.value_scale;
  if (a.output_gate) out *= sigmoid(gate_logit);
  a.out[row * a.out_stride + x_place(head * a.head_dim + thread)] = to_bf16(out);
}

}  // namespace

void attend_combine(const AttentionArgs& args, int row_begin, int rows, const Launcher& launcher) {
  const dim3 grid(static_cast<unsigned>(args.q_heads), static_cast<unsigned>(rows));
  launch(combine_kernel, launcher, grid, kThreads, 0, args, row_begin);
}

}  // namespace nibble::cuda
