// Attention of single rows over paged keys and values, on tensor cores (mma.sync, sm_80 up): keys
// are the rows of the left operand, the query heads of a KV head the 8 columns. The history of a
// row is cut into pieces whose length depends on the row's position alone; a block of 4 warps takes
// one piece of one KV head after another, the next tokens of each warp on their way; combine
// adds the pieces of a row in order and applies the gate. head_dim up to 256, any number of query
// heads per KV head. Bound: the bytes of keys and values; reached on an H200 at 131,072 tokens of
// context: 87 % (BF16), 68 % (FP8).
#include "backend/cuda/attention_codes.cuh"
#include "backend/cuda/launch.cuh"

namespace nibble::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kPage = 64;
constexpr int kBlocksPerMultiprocessor = 2;
static_assert(kAttendRowsMax == 32, "a lane keeps each row of a launch");
static_assert(kAttendTokensMin % kPage == 0);

/// Length of the pieces of a history of `tokens`: at most kAttendSplitsMax of them.
__device__ __forceinline__ int piece_tokens(int tokens) {
  constexpr int kUnit = kAttendTokensMin;
  return kUnit * ((tokens + kUnit * kAttendSplitsMax - 1) / (kUnit * kAttendSplitsMax));
}
__device__ __forceinline__ int piece_count(int tokens) {
  const int length = piece_tokens(max(tokens, 1));
  return (tokens + length - 1) / length;
}

__device__ __forceinline__ float* partial_at(const AttentionArgs& a, int row, int head, int piece) {
  return a.partial + ((static_cast<int64_t>(row) * a.q_heads + head) * a.splits_max + piece) *
                         attend_partial_floats(a.head_dim);
}

/// One piece of one row for up to 8 query heads of one KV head. All warps hold the same.
struct Piece {
  int row = 0;  // of the launch
  int kv_head = 0;
  int first_head = 0;
  int heads = 0;
  int index = 0;
  int begin = 0, end = 0;             // tokens; none: past the last piece
  const int32_t* page_ids = nullptr;  // of the piece
  int ids = 0;                        // lane l: page l of the window of 32 that is in work
};

/// The pieces of a launch, numbered row by row; lane r keeps row r.
class Pieces {
 public:
  __device__ Pieces(const AttentionArgs& a, int row_begin, int rows)
      : a_(a), row_begin_(row_begin) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int group = a.q_heads / a.kv_heads;
    passes_ = (group + kAttendHeads - 1) / kAttendHeads;
    tokens_ = lane < rows ? a.batch.kv_index[row_begin + lane] + 1 : 0;
    const int own = piece_count(tokens_) * a.kv_heads * passes_;
    int sum = own;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int below = __shfl_up_sync(kAllLanes, sum, step);
      if (lane >= step) sum += below;
    }
    before_ = sum - own;
    total_ = __shfl_sync(kAllLanes, sum, 31);
  }
  __device__ bool has(int number) const { return number < total_; }

  __device__ Piece at(int number) const {
    Piece piece;
    if (number >= total_) return piece;
    const unsigned begun = __ballot_sync(kAllLanes, before_ <= number);
    piece.row = 31 - __clz(static_cast<int>(begun));
    const int tokens = __shfl_sync(kAllLanes, tokens_, piece.row);
    const int local = number - __shfl_sync(kAllLanes, before_, piece.row);
    const int group = a_.q_heads / a_.kv_heads;
    const int part = local % (a_.kv_heads * passes_);
    piece.index = local / (a_.kv_heads * passes_);
    piece.kv_head = part / passes_;
    piece.first_head = piece.kv_head * group + part % passes_ * kAttendHeads;
    piece.heads = min(kAttendHeads, (piece.kv_head + 1) * group - piece.first_head);
    const int length = piece_tokens(tokens);
    piece.begin = piece.index * length;
    piece.end = min(piece.begin + length, tokens);
    piece.page_ids =
        a_.batch.pages + a_.batch.page_begin[row_begin_ + piece.row] + piece.begin / kPage;
    read_ids(piece, 0);
    return piece;
  }
  /// Line of token `first`, the first of a step.
  __device__ int64_t line(Piece& piece, int first, int64_t line_bytes) const {
    const int page = (first - piece.begin) / kPage;
    if (page > 0 && page % 32 == 0) read_ids(piece, page);
    const int64_t id = __shfl_sync(kAllLanes, piece.ids, page % 32);
    return id * a_.kv.page_stride + (piece.kv_head * kPage + first % kPage) * line_bytes;
  }

 private:
  static __device__ void read_ids(Piece& piece, int page) {
    const int mine = page + static_cast<int>(threadIdx.x) % 32;
    if (piece.begin + mine * kPage < piece.end) piece.ids = piece.page_ids[mine];
  }

  const AttentionArgs& a_;
  int row_begin_;
  int passes_;
  int tokens_, before_, total_;
};

template <KvFormat kFormat, int kDim, bool kExact>
class AttendBlock {
  using Step = KvStep<kFormat, kDim, kExact>;
  static constexpr int kGroups = Step::kGroups;
  static constexpr int kBlockTokens = kWarps * Step::kTokens;
  static_assert(kAttendTokensMin % kBlockTokens == 0 && kPage % Step::kTokens == 0);
  static constexpr int kQueryStride = kDim + 32;  // 16-bit numbers: free of bank conflicts
  static constexpr int kOutStride = kDim + 4;     // out, maximum, total
  /// BF16 has 8 bits, too few for queries and weights: each is a sum of two operands.
  static constexpr int kParts = kFormat == KvFormat::bf16 ? 2 : 1;

 public:
  struct Shared {
    uint16_t queries[kParts][kAttendHeads * kQueryStride];
    float out[kWarps][kAttendHeads][kOutStride];
  };

  __device__ AttendBlock(const AttentionArgs& a, int row_begin, int rows, Shared& shared)
      : a_(a),
        row_begin_(row_begin),
        pieces_(a, row_begin, rows),
        shared_(shared),
        line_bytes_(a.head_dim * kv_element_bytes(kFormat)),
        warp_(static_cast<int>(threadIdx.x) / 32),
        g_(static_cast<int>(threadIdx.x) % 32 / 4),
        q_(static_cast<int>(threadIdx.x) % 4) {}

  /// fresh: rows at the end of a history that this pass writes; they cannot be read ahead.
  __device__ void run(int fresh) {
    int number = static_cast<int>(blockIdx.x);
    Piece piece = pieces_.at(number);
    bool loaded = false;
    const int ahead = piece.begin + warp_ * Step::kTokens;
    if (ahead + Step::kTokens <= piece.end - fresh) {
      begin_loads(piece, ahead);
      loaded = true;
    }
    wait_for_inputs();
    while (pieces_.has(number)) {
      number += static_cast<int>(gridDim.x);
      read_queries(piece);
      Piece next = pieces_.at(number);
      loaded = walk(piece, next, loaded);
      write(piece);
      piece = next;
    }
  }

 private:
  /// The next tokens to load; their page is looked up here.
  __device__ __forceinline__ void aim(Piece& piece, int first) {
    line_ = pieces_.line(piece, first, line_bytes_);
    tokens_ = min(Step::kTokens, piece.end - first);
  }
  __device__ __forceinline__ void load_keys(int half) {
    step_.load_keys(a_.kv.keys + line_, line_bytes_, tokens_, half);
  }
  __device__ __forceinline__ void load_values(int half) {
    step_.load_values(a_.kv.values + line_, line_bytes_, tokens_, half);
  }
  __device__ __forceinline__ void begin_loads(Piece& piece, int first) {
    aim(piece, first);
    load_keys(0);
    load_keys(1);
    load_values(0);
  }

  /// The tokens of this warp; what follows them is on its way when it returns true.
  __device__ __forceinline__ bool walk(Piece& piece, Piece& next, bool loaded) {
    highest_[0] = highest_[1] = -INFINITY;
    total_[0] = total_[1] = 0.0F;
#pragma unroll
    for (int i = 0; i < Step::kTiles; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) out_[i][e] = 0.0F;
    int first = piece.begin + warp_ * Step::kTokens;
    if (first >= piece.end) return false;
    if (!loaded) begin_loads(piece, first);
    const int next_first = next.begin + warp_ * Step::kTokens;
    const bool next_has = next_first < next.end;
    for (;;) {
      float s[kGroups][4];
#pragma unroll
      for (int group = 0; group < kGroups; ++group) score(group, s[group]);
      load_values(1);
      const int left = piece.end - first;
      const bool more = left > kBlockTokens;
      const bool goes_on = more || next_has;
      if (more) {
        aim(piece, first + kBlockTokens);
      } else if (next_has) {
        aim(next, next_first);
      }
      if (goes_on) load_keys(0);
      uint32_t weights[kGroups][kParts][2];
      soften(s, left, weights);
      accumulate<0>(weights);
      if (goes_on) load_keys(1);
      accumulate<1>(weights);
      if (goes_on) load_values(0);
      if (!more) return next_has;
      first += kBlockTokens;
    }
  }

  /// Queries of a piece as right operands; those of absent heads are zero.
  __device__ void read_queries(const Piece& piece) {
    const int64_t stride = a_.output_gate ? 2 * a_.head_dim : a_.head_dim;
    const float* from =
        a_.q +
        (static_cast<int64_t>(row_begin_ + piece.row) * a_.q_heads + piece.first_head) * stride;
    constexpr int kQuads = kDim / 4;
#pragma unroll
    for (int i = static_cast<int>(threadIdx.x); i < kAttendHeads * kQuads; i += kWarps * 32) {
      const int head = i / kQuads;
      const int d = i % kQuads * 4;
      float4 x = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
      if (head < piece.heads) {
        const float* at = from + head * stride + d;
        if constexpr (kExact) {
          x = *reinterpret_cast<const float4*>(at);
        } else {
          if (d < a_.head_dim) x.x = at[0];
          if (d + 1 < a_.head_dim) x.y = at[1];
          if (d + 2 < a_.head_dim) x.z = at[2];
          if (d + 3 < a_.head_dim) x.w = at[3];
        }
      }
      const int at = head * kQueryStride + d;
      const uint2 pairs =
          make_uint2(operand_pair<kFormat>(x.x, x.y), operand_pair<kFormat>(x.z, x.w));
      *reinterpret_cast<uint2*>(&shared_.queries[0][at]) = pairs;
      if constexpr (kParts == 2)
        *reinterpret_cast<uint2*>(&shared_.queries[1][at]) = make_uint2(
            operand_rest<kFormat>(x.x, x.y, pairs.x), operand_rest<kFormat>(x.z, x.w, pairs.y));
    }
    __syncthreads();
  }

  /// s: token g of heads 2q, 2q+1, then token g + 8. Four sums, added at the end.
  __device__ __forceinline__ void score(int group, float (&s)[4]) const {
    constexpr int kSums = Step::kProducts < 4 ? Step::kProducts : 4;
    float sums[kSums][4] = {};
#pragma unroll
    for (int k = 0; k < Step::kProducts; k += 2) {
      uint32_t x[2][4];
      step_.key_operand(group, k, x[0]);
      step_.key_operand(group, k + 1, x[1]);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const uint4 b = *reinterpret_cast<const uint4*>(shared_.queries[part] + g_ * kQueryStride +
                                                        Step::query_dims(k, q_));
        mma_16x8x16<kFormat>(sums[k % kSums], x[0][0], x[0][1], x[0][2], x[0][3], b.x, b.y);
        mma_16x8x16<kFormat>(sums[(k + 1) % kSums], x[1][0], x[1][1], x[1][2], x[1][3], b.z, b.w);
      }
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      s[e] = sums[0][e];
#pragma unroll
      for (int k = 1; k < kSums; ++k) s[e] += sums[k][e];
    }
  }

  /// Scores to weights relative to the running maximum. left: tokens from the first on.
  __device__ __forceinline__ void soften(float (&s)[kGroups][4], int left,
                                         uint32_t (&weights)[kGroups][kParts][2]) {
    float rescale[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = -INFINITY;
#pragma unroll
      for (int e = 0; e < 2 * kGroups; ++e) {
        float& score = s[e / 2][e % 2 * 2 + h];
        if (g_ + 8 * e >= left) score = -INFINITY;
        top = fmaxf(top, score);
      }
#pragma unroll
      for (int step = 4; step < 32; step *= 2)
        top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, step));
      top = fmaxf(top, highest_[h]);
      rescale[h] = exp2f(highest_[h] - top);
      highest_[h] = top;
      float sum = 0.0F;
#pragma unroll
      for (int e = 0; e < 2 * kGroups; ++e) {
        float& score = s[e / 2][e % 2 * 2 + h];
        score = g_ + 8 * e >= left ? 0.0F : exp2f(score - top);
        sum += score;
      }
      total_[h] = fmaf(total_[h], rescale[h], sum);
    }
#pragma unroll
    for (int group = 0; group < kGroups; ++group)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const uint32_t pair = operand_pair<kFormat>(s[group][2 * e], s[group][2 * e + 1]);
        weights[group][0][e] = transpose_8x8(pair);
        if constexpr (kParts == 2)
          weights[group][1][e] =
              transpose_8x8(operand_rest<kFormat>(s[group][2 * e], s[group][2 * e + 1], pair));
      }
    if (__any_sync(kAllLanes, rescale[0] != 1.0F || rescale[1] != 1.0F)) {
#pragma unroll
      for (int i = 0; i < Step::kTiles; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) out_[i][e] *= rescale[e % 2];
    }
  }

  /// The values of one half, as load_values() has them.
  template <int kHalf>
  __device__ __forceinline__ void accumulate(const uint32_t (&weights)[kGroups][kParts][2]) {
    constexpr int kGroup = kGroups == 2 ? kHalf : 0;
    constexpr int kBegin = kGroups == 2 ? 0 : kHalf * Step::kTiles / 2;
    constexpr int kEnd = kGroups == 2 ? Step::kTiles : (kHalf + 1) * Step::kTiles / 2;
#pragma unroll
    for (int i = kBegin; i < kEnd; ++i) {
      uint32_t x[4];
      step_.value_operand(kGroup, i, x);
#pragma unroll
      for (int part = 0; part < kParts; ++part)
        mma_16x8x16<kFormat>(out_[i], x[0], x[1], x[2], x[3], weights[kGroup][part][0],
                             weights[kGroup][part][1]);
    }
  }

  /// Adds up the warps in order; out is not yet divided.
  __device__ void write(const Piece& piece) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float* mine = shared_.out[warp_][2 * q_ + h];
      float total = total_[h];
#pragma unroll
      for (int step = 4; step < 32; step *= 2) total += __shfl_xor_sync(kAllLanes, total, step);
      if (g_ == 0) *reinterpret_cast<float2*>(mine + kDim) = make_float2(highest_[h], total);
#pragma unroll
      for (int i = 0; i < Step::kTiles; ++i) {
        const int d = Step::out_dims(i, g_);
        if (d < kDim)
          *reinterpret_cast<float2*>(mine + d) = make_float2(out_[i][h], out_[i][h + 2]);
      }
    }
    __syncthreads();
    constexpr int kQuads = kDim / 4;
    for (int i = static_cast<int>(threadIdx.x); i < piece.heads * kQuads; i += kWarps * 32)
      add_warps(piece, i / kQuads, i % kQuads * 4);
    __syncthreads();
  }
  __device__ __forceinline__ void add_warps(const Piece& piece, int head, int d) const {
    float highest = -INFINITY;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) highest = fmaxf(highest, shared_.out[w][head][kDim]);
    float4 sum = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    float total = 0.0F;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float own = shared_.out[w][head][kDim];
      const float scale = own == -INFINITY ? 0.0F : exp2f(own - highest);
      const float4 x = *reinterpret_cast<const float4*>(&shared_.out[w][head][d]);
      sum.x = fmaf(scale, x.x, sum.x);
      sum.y = fmaf(scale, x.y, sum.y);
      sum.z = fmaf(scale, x.z, sum.z);
      sum.w = fmaf(scale, x.w, sum.w);
      total = fmaf(scale, shared_.out[w][head][kDim + 1], total);
    }
    float* to = partial_at(a_, piece.row, piece.first_head + head, piece.index);
    if (d < a_.head_dim) *reinterpret_cast<float4*>(to + d) = sum;
    if (d == 0)
      *reinterpret_cast<float2*>(to + attend_partial_floats(a_.head_dim) - 4) =
          make_float2(highest, total);
  }

  const AttentionArgs& a_;
  int row_begin_;
  Pieces pieces_;
  Shared& shared_;
  int64_t line_bytes_;
  int warp_, g_, q_;
  Step step_;
  int64_t line_ = 0;  // of the keys last asked for
  int tokens_ = 0;
  float out_[Step::kTiles][4];  // dims out_dims(i), + 1; heads 2q, 2q + 1: [dim][head]
  float highest_[2], total_[2];
};

/// Grid: blocks that take piece after piece.
template <KvFormat kFormat, int kDim, bool kExact>
__global__ void __launch_bounds__(kWarps * 32, kBlocksPerMultiprocessor)
    attend_kernel(const __grid_constant__ AttentionArgs a, int row_begin, int rows, int fresh) {
  __shared__ __align__(16) typename AttendBlock<kFormat, kDim, kExact>::Shared shared;
  touch(a);
  AttendBlock<kFormat, kDim, kExact> block(a, row_begin, rows, shared);
  block.run(fresh);
}

constexpr int kCombineGroups = 4;  // that share the pieces of a row: p % 4
constexpr int kCombineThreads = 256;

/// One block per head and row.
__global__ void __launch_bounds__(kCombineThreads)
    combine_kernel(const __grid_constant__ AttentionArgs a, int row_begin) {
  touch(a);
  wait_for_inputs();
  const int head = static_cast<int>(blockIdx.x);
  const int row = row_begin + static_cast<int>(blockIdx.y);
  const int tokens = a.batch.kv_index[row] + 1;
  if (tokens == 0) return;
  const int pieces = piece_count(tokens);
  const float* first = partial_at(a, static_cast<int>(blockIdx.y), head, 0);
  const auto stride = static_cast<int>(attend_partial_floats(a.head_dim));
  const auto thread = static_cast<int>(threadIdx.x);
  __shared__ float scales[kAttendSplitsMax];
  __shared__ float total;
  __shared__ __align__(16) float sums[kCombineGroups][kHeadDimMax];
  if (thread < 32) {
    constexpr int kOfLane = kAttendSplitsMax / 32;
    float highest[kOfLane], totals[kOfLane];
    float top = -INFINITY;
#pragma unroll
    for (int k = 0; k < kOfLane; ++k) {
      const int p = thread + 32 * k;
      const float* last = first + static_cast<int64_t>(p) * stride + stride - 4;
      highest[k] = p < pieces ? last[0] : -INFINITY;
      totals[k] = p < pieces ? last[1] : 0.0F;
      top = fmaxf(top, highest[k]);
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, step));
    float sum = 0.0F;
#pragma unroll
    for (int k = 0; k < kOfLane; ++k) {
      const int p = thread + 32 * k;
      const float scale = p < pieces ? exp2f(highest[k] - top) : 0.0F;
      scales[p] = scale;
      sum = p < pieces ? fmaf(scale, totals[k], sum) : sum;
    }
    sum = warp_sum(sum);
    if (thread == 0) total = sum;
  }
  __syncthreads();
  const int group = thread / (kCombineThreads / kCombineGroups);
  const int d = thread % (kCombineThreads / kCombineGroups) * 4;
  float4 sum = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
  if (d < a.head_dim) {
#pragma unroll 8
    for (int p = group; p < pieces; p += kCombineGroups) {
      const float4 x =
          *reinterpret_cast<const float4*>(first + static_cast<int64_t>(p) * stride + d);
      sum.x = fmaf(scales[p], x.x, sum.x);
      sum.y = fmaf(scales[p], x.y, sum.y);
      sum.z = fmaf(scales[p], x.z, sum.z);
      sum.w = fmaf(scales[p], x.w, sum.w);
    }
    *reinterpret_cast<float4*>(&sums[group][d]) = sum;
  }
  __syncthreads();
  const float* gate =
      a.q + (static_cast<int64_t>(row) * a.q_heads + head) * 2 * a.head_dim + a.head_dim;
  if (thread >= a.head_dim) return;
  float out = sums[0][thread];
#pragma unroll
  for (int k = 1; k < kCombineGroups; ++k) out += sums[k][thread];
  out /= total;
  if (a.output_gate) out *= sigmoid(gate[thread]);
  a.out[row * a.out_stride + x_place(head * a.head_dim + thread)] = to_bf16(out);
}
static_assert(kCombineThreads >= kHeadDimMax && kCombineThreads / kCombineGroups * 4 >= 256);

using AttendKernel = void (*)(AttentionArgs, int, int, int);

template <KvFormat kFormat>
AttendKernel choose(int head_dim) {
  switch (head_dim) {
    case 64:
      return attend_kernel<kFormat, 64, true>;
    case 128:
      return attend_kernel<kFormat, 128, true>;
    case 256:
      return attend_kernel<kFormat, 256, true>;
    default:
      return head_dim <= 64    ? attend_kernel<kFormat, 64, false>
             : head_dim <= 128 ? attend_kernel<kFormat, 128, false>
                               : attend_kernel<kFormat, 256, false>;
  }
}

}  // namespace

void attention_attend(const AttentionArgs& args, const Launcher& launcher) {
  const AttendKernel kernel = args.kv.format == KvFormat::fp8
                                  ? choose<KvFormat::fp8>(args.head_dim)
                                  : choose<KvFormat::bf16>(args.head_dim);
  const int group = args.q_heads / args.kv_heads;
  const int passes = args.kv_heads * ((group + kAttendHeads - 1) / kAttendHeads);
  // With several rows of a sequence, pages end in tokens of the same pass.
  const int fresh = args.batch.rows == args.batch.sequences ? 1 : 1 << 29;
  for (int begin = 0; begin < args.batch.rows; begin += kAttendRowsMax) {
    const int rows = min(kAttendRowsMax, args.batch.rows - begin);
    const int64_t pieces_max = int64_t{args.splits_max} * passes * rows;
    const auto blocks = static_cast<unsigned>(
        min(pieces_max, int64_t{kBlocksPerMultiprocessor} * launcher.multiprocessors));
    launch(kernel, launcher, blocks, kWarps * 32, 0, args, begin, rows, fresh);
    const dim3 grid(static_cast<unsigned>(args.q_heads), static_cast<unsigned>(rows));
    launch(combine_kernel, launcher, grid, kCombineThreads, 0, args, begin);
  }
}

}  // namespace nibble::cuda
