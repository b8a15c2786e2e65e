// Attention of single rows in F32, for `--activations f32`: norm and rotation of a query, scores of
// a page of tokens by warps, softmax relative to the running maximum, a thread per dimension; page
// after page, so that sums depend on the row alone. One block per query head and row, any page
// format. From compute capability 8.0 up, head_dim up to 256. Bound by the bytes of keys and
// values; far from it and not measured: every query head reads them anew.
#include "backend/cuda/ops/attention/kv_store.cuh"
#include "backend/cuda/ops/linear/split_inputs.cuh"
#include "backend/cuda/runtime/launch.cuh"

namespace nibble::cuda {
namespace {

constexpr int kThreads = kHeadDimMax;
constexpr int kWarps = kThreads / 32;

struct Scratch {
  float q[kHeadDimMax];
  float2 rotations[kPairsMax];
  float scores[kPage];
};

/// Norms and rotates the query of a head, and turns it as keys are; one warp does it.
template <KvFormat kFormat>
__device__ __forceinline__ void take_query(const AttentionArgs& a, int row, const float* from,
                                           Scratch& shared) {
  norm_head(a, load_head(a.q_norm, a.head_dim), load_head(from, a.head_dim), shared.q);
  for (int i = static_cast<int>(threadIdx.x); i < a.rope.pairs; i += 32)
    shared.rotations[i] = rotation_of(a, row, i);
  __syncwarp();
  rotate_heads<1>(a.rope.pairs, shared.rotations, shared.q);
  turn_query<kFormat>(shared.q, a.head_dim);
}

/// Scores of `count` tokens from `begin` on, a token a warp at a time.
template <KvFormat kFormat>
__device__ __forceinline__ void score(const AttentionArgs& a, int row, int kv_head, int begin,
                                      int count, Scratch& shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float scale = 1.0F / sqrtf(static_cast<float>(a.head_dim));
  for (int t = static_cast<int>(threadIdx.x) / 32; t < count; t += kWarps) {
    const KvLineAt key = line_begin<kFormat, KvSide::keys>(a, row, begin + t, kv_head);
    float dot = 0.0F;
    for (int i = lane; i < a.head_dim; i += 32)
      dot = fmaf(shared.q[i],
                 KvElements<kFormat>::template load<KvSide::keys>(a.kv.keys + key.codes,
                                                                  a.kv.keys + key.scales, i),
                 dot);
    dot = warp_sum(dot);
    if (lane == 0) shared.scores[t] = dot * scale;
  }
}

template <KvFormat kFormat>
__global__ void __launch_bounds__(kThreads)
    attend_f32_kernel(const __grid_constant__ AttentionArgs a) {
  __shared__ __align__(16) Scratch shared;
  wait_for_inputs();
  const int head = static_cast<int>(blockIdx.x);
  const int row = static_cast<int>(blockIdx.y);
  const int tokens = a.batch.kv_index[row] + 1;
  if (tokens == 0) return;
  const int kv_head = head / (a.q_heads / a.kv_heads);
  const int64_t stride = a.output_gate ? 2 * a.head_dim : a.head_dim;
  const float* q = a.q + (static_cast<int64_t>(row) * a.q_heads + head) * stride;
  if (threadIdx.x < 32) take_query<kFormat>(a, row, q, shared);
  __syncthreads();
  const int d = static_cast<int>(threadIdx.x);
  float highest = -INFINITY;
  float total = 0.0F;
  float out = 0.0F;
  for (int begin = 0; begin < tokens; begin += kPage) {
    const int count = min(kPage, tokens - begin);
    score<kFormat>(a, row, kv_head, begin, count, shared);
    __syncthreads();
    float top = highest;
    for (int t = 0; t < count; ++t) top = fmaxf(top, shared.scores[t]);
    const float rescale = expf(highest - top);
    highest = top;
    float page_total = 0.0F;
    float page_out = 0.0F;
    for (int t = 0; t < count; ++t) {
      const float weight = expf(shared.scores[t] - top);
      page_total += weight;
      if (d >= a.head_dim) continue;
      const KvLineAt value = line_begin<kFormat, KvSide::values>(a, row, begin + t, kv_head);
      page_out = fmaf(weight,
                      KvElements<kFormat>::template load<KvSide::values>(
                          a.kv.values + value.codes, a.kv.values + value.scales, d),
                      page_out);
    }
    total = fmaf(total, rescale, page_total);
    out = fmaf(out, rescale, page_out);
    __syncthreads();
  }
  if (d >= a.head_dim) return;
  out = out / total * a.value_scale;
  if (a.output_gate) out *= sigmoid(q[a.head_dim + d]);
  store_parts(a.out + row * a.out_stride, a.out_stride, head * a.head_dim + d, out);
}

}  // namespace

void attention_f32(const AttentionArgs& args, const Launcher& launcher) {
  attention_store(args, launcher);
  const auto kernel = with_any_kv_format(
      args.kv.format, [&]<KvFormat kFormat>() { return attend_f32_kernel<kFormat>; });
  const dim3 grid(static_cast<unsigned>(args.q_heads), static_cast<unsigned>(args.batch.rows));
  launch(kernel, launcher, grid, kThreads, 0, args);
}

}  // namespace nibble::cuda
