// What comes before attention, for generated rows and prompts: norm and rotation of q and k, k and
// v into their pages. One warp per head. Attention itself: attend.cu, flash_prefill.cu.
#include "backend/cuda/attention_codes.cuh"
#include "backend/cuda/launch.cuh"

namespace nibble::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kPage = 64;
constexpr float kLog2E = 1.4426950408889634F;

__device__ __forceinline__ float value_of(float x) { return x; }
__device__ __forceinline__ float value_of(uint16_t x) { return from_bf16(x); }
__device__ __forceinline__ void set(float& to, float x) { to = x; }
__device__ __forceinline__ void set(uint16_t& to, float x) { to = to_bf16(x); }

/// x[0, head_dim) = rotate(norm(x)) of one head, by one warp in shared memory.
template <typename T>
__device__ void norm_and_rotate(const AttentionArgs& a, int row, const T* from, const float* weight,
                                float* x) {
  const int lane = threadIdx.x % 32;
  float squares = 0.0F;
  for (int i = lane; i < a.head_dim; i += 32)
    squares = fmaf(value_of(from[i]), value_of(from[i]), squares);
  const float scale = rsqrtf(warp_sum(squares) / static_cast<float>(a.head_dim) + a.eps);
  for (int i = lane; i < a.head_dim; i += 32) x[i] = value_of(from[i]) * scale * weight[i];
  __syncwarp();
  for (int i = lane; i < a.rope.pairs; i += 32) {
    const int32_t position = a.batch.positions[a.rope.axes[i] * a.batch.positions_stride + row];
    constexpr double kTurn = 6.283185307179586476925;
    double angle = position * a.rope.inverse_frequencies[i];
    angle -= kTurn * rint(angle / kTurn);
    const float cosine = cosf(static_cast<float>(angle)) * a.rope.scale;
    const float sine = sinf(static_cast<float>(angle)) * a.rope.scale;
    const float low = x[i];
    const float high = x[i + a.rope.pairs];
    x[i] = low * cosine - high * sine;
    x[i + a.rope.pairs] = high * cosine + low * sine;
  }
  __syncwarp();
}

/// Where the keys and values of a token of a row's sequence begin, in bytes.
__device__ __forceinline__ int64_t line_begin(const AttentionArgs& a, int row, int token,
                                              int head) {
  const int64_t page = a.batch.pages[a.batch.page_begin[row] + token / kPage];
  return page * a.kv.page_stride +
         (head * kPage + token % kPage) * a.head_dim * kv_element_bytes(a.kv.format);
}

/// One warp per head of q, k or v. q_scale: what the queries are multiplied with.
template <KvFormat kFormat, typename T>
__device__ __forceinline__ void prepare_head(const AttentionArgs& a, T* q_rows, const T* k_rows,
                                             const T* v_rows, float q_scale, float* x) {
  const int row = blockIdx.y;
  const int lane = threadIdx.x % 32;
  int head = blockIdx.x * kWarps + threadIdx.x / 32;
  const int token = a.batch.kv_index[row];
  if (token < 0 || head >= a.q_heads + 2 * a.kv_heads) return;
  if (head < a.q_heads) {
    const int64_t stride = a.output_gate ? 2 * a.head_dim : a.head_dim;
    T* q = q_rows + (static_cast<int64_t>(row) * a.q_heads + head) * stride;
    norm_and_rotate(a, row, q, a.q_norm, x);
    for (int i = lane; i < a.head_dim; i += 32) set(q[i], x[i] * q_scale);
    return;
  }
  head -= a.q_heads;
  const int kv_head = head % a.kv_heads;
  const int64_t at = (static_cast<int64_t>(row) * a.kv_heads + kv_head) * a.head_dim;
  const int64_t to = line_begin(a, row, token, kv_head);
  if (head < a.kv_heads) {
    norm_and_rotate(a, row, k_rows + at, a.k_norm, x);
    for (int i = lane; i < a.head_dim; i += 32) store_code<kFormat>(a.kv.keys + to, i, x[i]);
  } else {
    for (int i = lane; i < a.head_dim; i += 32)
      store_code<kFormat>(a.kv.values + to, i, value_of(v_rows[at + i]));
  }
}

template <KvFormat kFormat>
__global__ void __launch_bounds__(kWarps * 32)
    prepare_kernel(const __grid_constant__ AttentionArgs a) {
  __shared__ float scratch[kWarps][kHeadDimMax];
  touch(a);
  wait_for_inputs();
  const float scale = rsqrtf(static_cast<float>(a.head_dim)) * kLog2E;
  prepare_head<kFormat>(a, a.q, a.k, a.v, scale, scratch[threadIdx.x / 32]);
}

template <KvFormat kFormat>
__global__ void __launch_bounds__(kWarps * 32)
    prepare_prompt_kernel(const __grid_constant__ PromptAttentionArgs a) {
  __shared__ float scratch[kWarps][kHeadDimMax];
  wait_for_inputs();
  prepare_head<kFormat>(a.base, a.q, a.k, a.v, 1.0F, scratch[threadIdx.x / 32]);
}

dim3 prepare_grid(const AttentionArgs& args) {
  const int heads = args.q_heads + 2 * args.kv_heads;
  return {static_cast<unsigned>((heads + kWarps - 1) / kWarps),
          static_cast<unsigned>(args.batch.rows)};
}

}  // namespace

void attention_prepare(const AttentionArgs& args, const Launcher& launcher) {
  const auto kernel = args.kv.format == KvFormat::fp8 ? prepare_kernel<KvFormat::fp8>
                                                      : prepare_kernel<KvFormat::bf16>;
  launch(kernel, launcher, prepare_grid(args), kWarps * 32, 0, args);
}
void attention_prepare(const PromptAttentionArgs& args, const Launcher& launcher) {
  const auto kernel = args.base.kv.format == KvFormat::fp8 ? prepare_prompt_kernel<KvFormat::fp8>
                                                           : prepare_prompt_kernel<KvFormat::bf16>;
  launch(kernel, launcher, prepare_grid(args.base), kWarps * 32, 0, args);
}

}  // namespace nibble::cuda
