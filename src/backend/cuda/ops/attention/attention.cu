// This file has the steps before attention: it norms and rotates q and k of a prompt, and stores k
// and v of rows in their pages, one warp a head. Attention itself is in attend.cu, flash_prefill.cu
// and attend_f32.cu.
#include "backend/cuda/ops/attention/kv_store.cuh"
#include "backend/cuda/runtime/launch.cuh"

namespace nibble::cuda {
namespace {

constexpr int kWarps = 4;

struct Scratch {
  float head[kHeadDimMax];
  float2 rotations[kPairsMax];
};

template <typename T>
__device__ __forceinline__ HeadPart normed_and_rotated(const AttentionArgs& a, int row,
                                                       const T* from, const float* weight,
                                                       Scratch& scratch) {
  norm_head(a, load_head(weight, a.head_dim), load_head(from, a.head_dim), scratch.head);
  for (int i = static_cast<int>(threadIdx.x) % 32; i < a.rope.pairs; i += 32)
    scratch.rotations[i] = rotation_of(a, row, i);
  __syncwarp();
  rotate_heads<1>(a.rope.pairs, scratch.rotations, scratch.head);
  __syncwarp();
  return load_head(scratch.head, kHeadDimMax);
}

/// k or v of one KV head into the page of its token; `head` counts keys, then values.
template <KvFormat kFormat, typename T>
__device__ __forceinline__ void store_kv(const AttentionArgs& a, int row, int head, const T* k_rows,
                                         const T* v_rows, Scratch& scratch) {
  const int kv_head = head % a.kv_heads;
  const int64_t at = (static_cast<int64_t>(row) * a.kv_heads + kv_head) * a.head_dim;
  const int token = a.batch.kv_index[row];
  if (head < a.kv_heads) {
    const KvLineAt to = line_begin<kFormat, KvSide::keys>(a, row, token, kv_head);
    const HeadPart k = normed_and_rotated(a, row, k_rows + at, a.k_norm, scratch);
    store_line<kFormat, KvSide::keys>(a.kv.keys + to.codes, a.kv.keys + to.scales, k, a.head_dim,
                                      a.head_dim);
  } else {
    const KvLineAt to = line_begin<kFormat, KvSide::values>(a, row, token, kv_head);
    const HeadPart v = by_scale(load_head(v_rows + at, a.head_dim), a.value_scale);
    store_line<kFormat, KvSide::values>(a.kv.values + to.codes, a.kv.values + to.scales, v,
                                        a.head_dim, a.head_dim);
  }
}

template <KvFormat kFormat>
__global__ void __launch_bounds__(kWarps * 32)
    store_kernel(const __grid_constant__ AttentionArgs a) {
  __shared__ __align__(16) Scratch scratch[kWarps];
  touch(a);
  wait_for_inputs();
  const int row = static_cast<int>(blockIdx.y);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int head = static_cast<int>(blockIdx.x) * kWarps + warp;
  if (a.batch.kv_index[row] < 0 || head >= 2 * a.kv_heads) return;
  store_kv<kFormat>(a, row, head, a.k, a.v, scratch[warp]);
}

template <KvFormat kFormat>
__global__ void __launch_bounds__(kWarps * 32)
    prepare_prompt_kernel(const __grid_constant__ PromptAttentionArgs p) {
  __shared__ __align__(16) Scratch scratch[kWarps];
  wait_for_inputs();
  const AttentionArgs& a = p.base;
  const int row = static_cast<int>(blockIdx.y);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int head = static_cast<int>(blockIdx.x) * kWarps + warp;
  if (a.batch.kv_index[row] < 0 || head >= a.q_heads + 2 * a.kv_heads) return;
  if (head >= a.q_heads)
    return store_kv<kFormat>(a, row, head - a.q_heads, p.k, p.v, scratch[warp]);
  const int64_t stride = a.output_gate ? 2 * a.head_dim : a.head_dim;
  uint16_t* q = p.q + (static_cast<int64_t>(row) * a.q_heads + head) * stride;
  HeadPart x = normed_and_rotated(a, row, q, a.q_norm, scratch[warp]);
  turn_query<kFormat>(x, a.head_dim);
  store_line<KvFormat::bf16, KvSide::keys>(reinterpret_cast<uint8_t*>(q), nullptr, x, a.head_dim,
                                           a.head_dim);
}

dim3 grid_of(int heads, int rows) {
  return {static_cast<unsigned>((heads + kWarps - 1) / kWarps), static_cast<unsigned>(rows)};
}

}  // namespace

void attention_store(const AttentionArgs& args, const Launcher& launcher) {
  const auto kernel =
      with_any_kv_format(args.kv.format, [&]<KvFormat kFormat>() { return store_kernel<kFormat>; });
  launch(kernel, launcher, grid_of(2 * args.kv_heads, args.batch.rows), kWarps * 32, 0, args);
}
void attention_prepare(const PromptAttentionArgs& args, const Launcher& launcher) {
  const auto kernel = with_kv_format(
      args.base.kv.format, [&]<KvFormat kFormat>() { return prepare_prompt_kernel<kFormat>; });
  const int heads = args.base.q_heads + 2 * args.base.kv_heads;
  launch(kernel, launcher, grid_of(heads, args.base.batch.rows), kWarps * 32, 0, args);
}

}  // namespace nibble::cuda
