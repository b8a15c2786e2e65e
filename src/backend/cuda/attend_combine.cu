// The pieces of each row and head of generation attention added in order, divided and gated. Bound:
// the bytes of the partial results, which attend.cu left in the L2.
#include "backend/cuda/attend_pieces.cuh"
#include "backend/cuda/launch.cuh"

namespace nibble::cuda {
namespace {

constexpr int kGroups = 4;  // that share the pieces of a row: p % 4
constexpr int kThreads = 256;
constexpr int kAhead = 8;  // pieces of a group asked for at once
static_assert(kThreads >= kHeadDimMax && kThreads / kGroups * 4 >= kHeadDimMax);

/// What brings the pieces of a row to one maximum, and the total of their weights, by one warp.
__device__ __forceinline__ void scale_pieces(const float* last, int stride, int pieces,
                                             float* scales, float* total) {
  constexpr int kOfLane = kAttendSplitsMax / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float highest[kOfLane], totals[kOfLane];
  float top = -INFINITY;
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) {
    const int p = lane + 32 * k;
    float2 of = make_float2(-INFINITY, 0.0F);
    if (p < pieces) of = *reinterpret_cast<const float2*>(last + static_cast<int64_t>(p) * stride);
    highest[k] = of.x;
    totals[k] = of.y;
  }
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) top = fmaxf(top, highest[k]);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, step));
  float sum = 0.0F;
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) {
    const int p = lane + 32 * k;
    const float scale = p < pieces ? exp2f(highest[k] - top) : 0.0F;
    scales[p] = scale;
    sum = p < pieces ? fmaf(scale, totals[k], sum) : sum;
  }
  sum = warp_sum(sum);
  if (lane == 0) *total = sum;
}

/// One block per head and row.
__global__ void __launch_bounds__(kThreads)
    combine_kernel(const __grid_constant__ AttentionArgs a,
                   const __grid_constant__ AttendLaunch of) {
  __shared__ float scales[kAttendSplitsMax];
  __shared__ float total;
  __shared__ __align__(16) float sums[kGroups][kHeadDimMax];
  touch(a);
  const int head = static_cast<int>(blockIdx.x);
  int histories[2];
  load_tokens(a, of, histories);
  const LaunchRows rows = launch_rows(a, of, histories);
  const int local = rows.begin + static_cast<int>(blockIdx.y);
  const int row = of.row_begin + local;
  const int tokens = local < rows.end ? a.batch.kv_index[row] + 1 : 0;
  const int pieces = piece_count(tokens);
  const float* first = partial_at(a, rows, local, head, 0);
  const auto stride = static_cast<int>(attend_partial_floats(a.head_dim));
  const auto thread = static_cast<int>(threadIdx.x);
  const int group = thread / (kThreads / kGroups);
  const int d = thread % (kThreads / kGroups) * 4;
  wait_for_inputs();
  if (tokens == 0) return;
  const auto load = [&](int p) {
    return p < pieces && d < a.head_dim
               ? *reinterpret_cast<const float4*>(first + static_cast<int64_t>(p) * stride + d)
               : make_float4(0.0F, 0.0F, 0.0F, 0.0F);
  };
  float4 x[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) x[i] = load(group + kGroups * i);
  const float* gate =
      a.q + (static_cast<int64_t>(row) * a.q_heads + head) * 2 * a.head_dim + a.head_dim;
  const float gate_logit = a.output_gate && thread < a.head_dim ? gate[thread] : 0.0F;
  if (thread < 32) scale_pieces(first + stride - 4, stride, pieces, scales, &total);
  __syncthreads();
  float4 sum = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
#pragma unroll 1
  for (int begin = group; begin < pieces; begin += kGroups * kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int p = begin + kGroups * i;
      const float scale = p < pieces ? scales[p] : 0.0F;
      sum.x = fmaf(scale, x[i].x, sum.x);
      sum.y = fmaf(scale, x[i].y, sum.y);
      sum.z = fmaf(scale, x[i].z, sum.z);
      sum.w = fmaf(scale, x[i].w, sum.w);
      x[i] = load(p + kGroups * kAhead);
    }
  }
  if (d < a.head_dim) *reinterpret_cast<float4*>(&sums[group][d]) = sum;
  __syncthreads();
  if (thread >= a.head_dim) return;
  float out = sums[0][thread];
#pragma unroll
  for (int k = 1; k < kGroups; ++k) out += sums[k][thread];
  out /= total;
  if (a.output_gate) out *= sigmoid(gate_logit);
  a.out[row * a.out_stride + x_place(head * a.head_dim + thread)] = to_bf16(out);
}

}  // namespace

void attend_combine(const AttentionArgs& args, const AttendLaunch& of, const Launcher& launcher) {
  const int rows = of.share == AttendShare::first ? of.rows : of.rows - kAttendRowsMax / 2;
  const dim3 grid(static_cast<unsigned>(args.q_heads), static_cast<unsigned>(rows));
  launch(combine_kernel, launcher, grid, kThreads, 0, args, of);
}

}  // namespace nibble::cuda
