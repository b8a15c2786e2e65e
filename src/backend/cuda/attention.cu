// Attention of single rows over paged KV (BF16). prepare: norm and rotation of q and k, k and v
// into their pages. attend: the history of a row is cut into pieces whose length depends on the
// row's position alone, each piece of a KV head is one block of 4 warps; combine: pieces in order,
// gate. head_dim up to 256, any number of query heads per KV head. Bound: the bytes of keys and
// values.
#include "backend/cuda/device_math.cuh"
#include "backend/cuda/launch.cuh"

namespace nibble::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kHeads = 8;       // query heads of one pass over the keys
constexpr int kLaneDims = 8;    // dimensions of one lane: 32 lanes hold 256
constexpr int kStepTokens = 4;  // tokens a warp takes at a time
constexpr int kPage = 64;
constexpr float kLog2E = 1.4426950408889634F;

/// Length of the pieces of a history of `tokens`: at most kAttendSplitsMax of them.
__device__ __forceinline__ int piece_tokens(int tokens) {
  const int unit = kAttendTokensMin;
  return unit * ((tokens + unit * kAttendSplitsMax - 1) / (unit * kAttendSplitsMax));
}

// --- prepare

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

/// Element offset of a token of a row's sequence in its page.
__device__ __forceinline__ int64_t page_offset(const AttentionArgs& a, int row, int token,
                                               int head) {
  const int page = a.batch.pages[a.batch.page_begin[row] + token / kPage];
  return page * a.kv.page_stride + static_cast<int64_t>(head * kPage + token % kPage) * a.head_dim;
}

/// One warp per head of q, k or v. q_scale: what the queries are multiplied with.
template <typename T>
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
  const int64_t to = page_offset(a, row, token, kv_head);
  if (head < a.kv_heads) {
    norm_and_rotate(a, row, k_rows + at, a.k_norm, x);
    for (int i = lane; i < a.head_dim; i += 32) a.kv.keys[to + i] = to_bf16(x[i]);
  } else {
    for (int i = lane; i < a.head_dim; i += 32)
      a.kv.values[to + i] = to_bf16(value_of(v_rows[at + i]));
  }
}

__global__ void __launch_bounds__(kWarps * 32)
    prepare_kernel(const __grid_constant__ AttentionArgs a) {
  __shared__ float scratch[kWarps][kHeadDimMax];
  wait_for_inputs();
  const float scale = rsqrtf(static_cast<float>(a.head_dim)) * kLog2E;
  prepare_head(a, a.q, a.k, a.v, scale, scratch[threadIdx.x / 32]);
}

__global__ void __launch_bounds__(kWarps * 32)
    prepare_prompt_kernel(const __grid_constant__ PromptAttentionArgs a) {
  __shared__ float scratch[kWarps][kHeadDimMax];
  wait_for_inputs();
  prepare_head(a.base, a.q, a.k, a.v, 1.0F, scratch[threadIdx.x / 32]);
}

// --- attend

/// 8 dimensions of a key or value in BF16; zero beyond head_dim.
template <bool kAligned>
__device__ __forceinline__ uint4 load_dims(const uint16_t* from, int head_dim) {
  const int begin = static_cast<int>(threadIdx.x % 32) * kLaneDims;
  if constexpr (kAligned) {
    if (begin >= head_dim) return make_uint4(0, 0, 0, 0);
    return *reinterpret_cast<const uint4*>(from + begin);
  } else {
    uint32_t words[4] = {};
#pragma unroll
    for (int i = 0; i < kLaneDims; ++i)
      if (begin + i < head_dim)
        words[i / 2] |= static_cast<uint32_t>(from[begin + i]) << 16 * (i % 2);
    return make_uint4(words[0], words[1], words[2], words[3]);
  }
}

__device__ __forceinline__ void widen_dims(const uint4& v, float (&out)[kLaneDims]) {
  const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = low_bf16(words[i]);
    out[2 * i + 1] = high_bf16(words[i]);
  }
}

/// Keys and values of the tokens of one step.
struct TokenStep {
  uint4 k[kStepTokens], v[kStepTokens];
};

/// Past the end the last token is read again; its weight will be zero.
template <bool kAligned>
__device__ __forceinline__ void load_tokens(const AttentionArgs& a, int row, int kv_head, int first,
                                            int end, TokenStep& step) {
#pragma unroll
  for (int t = 0; t < kStepTokens; ++t) {
    const int64_t at = page_offset(a, row, min(first + t, end - 1), kv_head);
    step.k[t] = load_dims<kAligned>(a.kv.keys + at, a.head_dim);
    step.v[t] = load_dims<kAligned>(a.kv.values + at, a.head_dim);
  }
}

/// One step of sum_to_lanes: lanes that differ in bit kHalf exchange halves of their values.
template <int kHalf>
__device__ __forceinline__ void exchange_halves(float (&values)[32]) {
  const bool upper = (threadIdx.x & kHalf) != 0;
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    const float keep = upper ? values[i + kHalf] : values[i];
    const float give = upper ? values[i] : values[i + kHalf];
    values[i] = keep + __shfl_xor_sync(kAllLanes, give, kHalf);
  }
}

/// values[v] summed over the lanes ends in lane v.
__device__ __forceinline__ float sum_to_lanes(float (&values)[32]) {
  exchange_halves<16>(values);
  exchange_halves<8>(values);
  exchange_halves<4>(values);
  exchange_halves<2>(values);
  exchange_halves<1>(values);
  return values[0];
}

/// Running softmax of one warp over its tokens. Lane l tracks head l % 8.
struct Running {
  float highest = -INFINITY;
  float total = 0.0F;
  float out[kHeads][kLaneDims] = {};
};

__device__ __forceinline__ void take_tokens(const TokenStep& step, int first, int end,
                                            const float (&q)[kHeads][kLaneDims], Running& run) {
  const int lane = threadIdx.x % 32;
  float scores[32];
#pragma unroll
  for (int t = 0; t < kStepTokens; ++t) {
    float k[kLaneDims];
    widen_dims(step.k[t], k);
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      float dot = 0.0F;
#pragma unroll
      for (int i = 0; i < kLaneDims; ++i) dot = fmaf(q[h][i], k[i], dot);
      scores[t * kHeads + h] = dot;
    }
  }
  float score = sum_to_lanes(scores);  // of token lane / 8, head lane % 8
  if (first + lane / kHeads >= end) score = -INFINITY;
  float highest = fmaxf(score, __shfl_xor_sync(kAllLanes, score, 8));
  highest = fmaxf(highest, __shfl_xor_sync(kAllLanes, highest, 16));
  highest = fmaxf(highest, run.highest);
  const float rescale = exp2f(run.highest - highest);
  const bool absent = first + lane / kHeads >= end;
  const float weight = absent ? 0.0F : exp2f(score - highest);
  float sum = weight + __shfl_xor_sync(kAllLanes, weight, 8);
  sum += __shfl_xor_sync(kAllLanes, sum, 16);
  run.total = fmaf(run.total, rescale, sum);
  run.highest = highest;
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    const float old = __shfl_sync(kAllLanes, rescale, h);
#pragma unroll
    for (int i = 0; i < kLaneDims; ++i) run.out[h][i] *= old;
  }
#pragma unroll
  for (int t = 0; t < kStepTokens; ++t) {
    float v[kLaneDims];
    widen_dims(step.v[t], v);
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      const float p = __shfl_sync(kAllLanes, weight, t * kHeads + h);
#pragma unroll
      for (int i = 0; i < kLaneDims; ++i) run.out[h][i] = fmaf(p, v[i], run.out[h][i]);
    }
  }
}

__device__ __forceinline__ float* partial_at(const AttentionArgs& a, int row, int head, int piece) {
  return a.partial +
         ((static_cast<int64_t>(row) * a.q_heads + head) * a.splits_max + piece) * (a.head_dim + 2);
}

/// Adds up the warps of a block in order and writes one partial result per head: [out, highest,
/// total], out not yet divided.
__device__ void write_partial(const AttentionArgs& a, int local_row, int first_head, int heads,
                              int piece, const Running& run, float* shared) {
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  float* mine = shared + warp * kHeads * (kHeadDimMax + 2);
#pragma unroll
  for (int h = 0; h < kHeads; ++h)
#pragma unroll
    for (int i = 0; i < kLaneDims; ++i)
      mine[h * (kHeadDimMax + 2) + lane * kLaneDims + i] = run.out[h][i];
  if (lane < kHeads) {
    mine[lane * (kHeadDimMax + 2) + kHeadDimMax] = run.highest;
    mine[lane * (kHeadDimMax + 2) + kHeadDimMax + 1] = run.total;
  }
  __syncthreads();
  for (int h = 0; h < heads; ++h) {
    const float* of = shared + h * (kHeadDimMax + 2);
    constexpr int kStride = kHeads * (kHeadDimMax + 2);
    float highest = -INFINITY;
    for (int w = 0; w < kWarps; ++w) highest = fmaxf(highest, of[w * kStride + kHeadDimMax]);
    float scale[kWarps];
    float total = 0.0F;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float own = of[w * kStride + kHeadDimMax];
      scale[w] = own == -INFINITY ? 0.0F : exp2f(own - highest);
      total = fmaf(scale[w], of[w * kStride + kHeadDimMax + 1], total);
    }
    float* to = partial_at(a, local_row, first_head + h, piece);
    for (int i = threadIdx.x; i < a.head_dim; i += kWarps * 32) {
      float sum = 0.0F;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum = fmaf(scale[w], of[w * kStride + i], sum);
      to[i] = sum;
    }
    if (threadIdx.x == 0) {
      to[a.head_dim] = highest;
      to[a.head_dim + 1] = total;
    }
  }
}

/// Block (piece, group of query heads, row).
template <bool kAligned>
__global__ void __launch_bounds__(kWarps * 32)
    attend_kernel(const __grid_constant__ AttentionArgs a, int row_begin) {
  extern __shared__ float shared[];
  wait_for_inputs();
  const int row = row_begin + blockIdx.z;
  const int tokens = a.batch.kv_index[row] + 1;
  const int length = piece_tokens(tokens);
  const int begin = blockIdx.x * length;
  if (begin >= tokens) return;
  const int end = min(begin + length, tokens);
  const int group = a.q_heads / a.kv_heads;
  const int passes = (group + kHeads - 1) / kHeads;
  const int kv_head = blockIdx.y / passes;
  const int first_head = kv_head * group + blockIdx.y % passes * kHeads;
  const int heads = min(kHeads, (kv_head + 1) * group - first_head);

  const int lane = threadIdx.x % 32;
  const int64_t stride = a.output_gate ? 2 * a.head_dim : a.head_dim;
  float q[kHeads][kLaneDims];
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    const float* from = a.q + (static_cast<int64_t>(row) * a.q_heads + first_head + h) * stride;
    const int d = lane * kLaneDims;
    if constexpr (kAligned) {
      const bool present = h < heads && d < a.head_dim;
      const float4 zero = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
      const float4 x = present ? *reinterpret_cast<const float4*>(from + d) : zero;
      const float4 y = present ? *reinterpret_cast<const float4*>(from + d + 4) : zero;
      q[h][0] = x.x, q[h][1] = x.y, q[h][2] = x.z, q[h][3] = x.w;
      q[h][4] = y.x, q[h][5] = y.y, q[h][6] = y.z, q[h][7] = y.w;
    } else {
#pragma unroll
      for (int i = 0; i < kLaneDims; ++i)
        q[h][i] = h < heads && d + i < a.head_dim ? from[d + i] : 0.0F;
    }
  }
  Running run;
  constexpr int kStride = kWarps * kStepTokens;
  int first = begin + static_cast<int>(threadIdx.x) / 32 * kStepTokens;
  TokenStep step;
  if (first < end) load_tokens<kAligned>(a, row, kv_head, first, end, step);
  while (first < end) {
    TokenStep next;
    if (first + kStride < end) load_tokens<kAligned>(a, row, kv_head, first + kStride, end, next);
    take_tokens(step, first, end, q, run);
    step = next;
    first += kStride;
  }
  write_partial(a, blockIdx.z, first_head, heads, blockIdx.x, run, shared);
}

/// One block per head and row.
__global__ void __launch_bounds__(kWarps * 32)
    combine_kernel(const __grid_constant__ AttentionArgs a, int row_begin) {
  wait_for_inputs();
  const int head = blockIdx.x;
  const int row = row_begin + blockIdx.y;
  const int tokens = a.batch.kv_index[row] + 1;
  if (tokens == 0) return;
  const int length = piece_tokens(tokens);
  const int pieces = (tokens + length - 1) / length;
  const float* first = partial_at(a, blockIdx.y, head, 0);
  const int stride = a.head_dim + 2;
  __shared__ float scales[kAttendSplitsMax];
  __shared__ float total;
  if (threadIdx.x < 32) {  // two pieces per lane
    static_assert(kAttendSplitsMax == 64);
    const int p0 = threadIdx.x;
    const int p1 = p0 + 32;
    const float h0 = p0 < pieces ? first[p0 * stride + a.head_dim] : -INFINITY;
    const float h1 = p1 < pieces ? first[p1 * stride + a.head_dim] : -INFINITY;
    const float t0 = p0 < pieces ? first[p0 * stride + a.head_dim + 1] : 0.0F;
    const float t1 = p1 < pieces ? first[p1 * stride + a.head_dim + 1] : 0.0F;
    float highest = fmaxf(h0, h1);
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
      highest = fmaxf(highest, __shfl_xor_sync(kAllLanes, highest, step));
    scales[p0] = p0 < pieces ? exp2f(h0 - highest) : 0.0F;
    scales[p1] = p1 < pieces ? exp2f(h1 - highest) : 0.0F;
    const float sum = warp_sum(fmaf(scales[p0], t0, p1 < pieces ? scales[p1] * t1 : 0.0F));
    if (threadIdx.x == 0) total = sum;
  }
  __syncthreads();
  const float* gate =
      a.q + (static_cast<int64_t>(row) * a.q_heads + head) * 2 * a.head_dim + a.head_dim;
  for (int i = threadIdx.x; i < a.head_dim; i += kWarps * 32) {
    float sum = 0.0F;
#pragma unroll 8
    for (int p = 0; p < pieces; ++p) sum = fmaf(scales[p], first[p * stride + i], sum);
    float out = sum / total;
    if (a.output_gate) out *= sigmoid(gate[i]);
    a.out[row * a.out_stride + x_place(head * a.head_dim + i)] = to_bf16(out);
  }
}

constexpr size_t kSharedBytes = sizeof(float) * kWarps * kHeads * (kHeadDimMax + 2);

template <bool kAligned>
void launch_attend(const AttentionArgs& args, const Launcher& launcher, int row_begin, int rows) {
  const int group = args.q_heads / args.kv_heads;
  const int passes = (group + kHeads - 1) / kHeads;
  const dim3 grid(static_cast<unsigned>(args.splits_max),
                  static_cast<unsigned>(args.kv_heads * passes), static_cast<unsigned>(rows));
  launch(attend_kernel<kAligned>, launcher, grid, kWarps * 32, kSharedBytes, args, row_begin);
}

}  // namespace

namespace {

dim3 prepare_grid(const AttentionArgs& args) {
  const int heads = args.q_heads + 2 * args.kv_heads;
  return {static_cast<unsigned>((heads + kWarps - 1) / kWarps),
          static_cast<unsigned>(args.batch.rows)};
}

}  // namespace

void attention_prepare(const AttentionArgs& args, const Launcher& launcher) {
  launch(prepare_kernel, launcher, prepare_grid(args), kWarps * 32, 0, args);
}
void attention_prepare(const PromptAttentionArgs& args, const Launcher& launcher) {
  launch(prepare_prompt_kernel, launcher, prepare_grid(args.base), kWarps * 32, 0, args);
}

void attention_attend(const AttentionArgs& args, const Launcher& launcher) {
  static_assert(kSharedBytes <= 48 * 1024);
  for (int begin = 0; begin < args.batch.rows; begin += kAttendRowsMax) {
    const int rows = min(kAttendRowsMax, args.batch.rows - begin);
    if (args.head_dim % kLaneDims == 0) {
      launch_attend<true>(args, launcher, begin, rows);
    } else {
      launch_attend<false>(args, launcher, begin, rows);
    }
    const dim3 grid(static_cast<unsigned>(args.q_heads), static_cast<unsigned>(rows));
    launch(combine_kernel, launcher, grid, kWarps * 32, 0, args, begin);
  }
}

}  // namespace nibble::cuda
