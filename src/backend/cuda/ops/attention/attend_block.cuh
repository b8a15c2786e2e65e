// The work of a thread block of attend.cu: attention of single rows on tensor cores. In the product
// of scores the queries of a KV head are rows of the left operand, and what their rounding leaves 8
// more; in the product of results dimensions are the rows and query heads the columns. A block of 4
// warps norms and rotates the queries of a row and, where the row's own token is in its split, that
// token's k and v. It takes one split of the history after another (attend_splits.cuh), and each
// warp loads its next tokens meanwhile.
#pragma once

#include "backend/cuda/ops/attention/attend_splits.cuh"
#include "backend/cuda/ops/attention/kv_store.cuh"

namespace nibble::cuda {

inline constexpr int kAttendWarps = 4;
inline constexpr int kAttendThreads = kAttendWarps * 32;
static_assert(kAttendThreads >= kPairsMax && kAttendHeads == 2 * kAttendWarps);

template <KvFormat kFormat, int kDim, bool kExact>
class AttendBlock {
  using Elements = KvElements<kFormat>;
  using Step = KvStep<kFormat, kDim, kExact>;
  static constexpr int kWarps = kAttendWarps;
  static constexpr int kHeadThreads = kAttendThreads / kAttendHeads;
  static constexpr int kGroups = Step::kGroups;
  static constexpr int kBlockTokens = kWarps * Step::kTokens;
  static_assert(kAttendTokensMin % kBlockTokens == 0 && kPage % Step::kTokens == 0);
  static constexpr int kOutStride = kDim + 4;  // out, maximum, total
  static constexpr int kParts = Elements::kWeightParts;

 public:
  struct Shared {
    uint4 queries[Step::kProducts][32];            // as left operands
    alignas(16) uint8_t own[2][Step::kLineBytes];  // k and v of the row's own token
    alignas(16) uint8_t own_scales[2][Step::kScaleBytes];
    union {
      float out[kWarps][kAttendHeads][kOutStride];
      float heads[kWarps][3][kHeadDimMax];  // before they are operands
    };
    float2 rotations[kPairsMax];  // of the row
    SplitTable table;
    KvSplit splits[2];  // the one in work and the next, alternately
  };

  __device__ AttendBlock(const AttentionArgs& a, const AttendLaunch& launch, Shared& shared)
      : a_(a),
        launch_(launch),
        shared_(shared),
        warp_(static_cast<int>(threadIdx.x) / 32),
        g_(static_cast<int>(threadIdx.x) % 32 / 4),
        q_(static_cast<int>(threadIdx.x) % 4) {}

  __device__ void run() {
    if (warp_ == 0) shared_.table.fill(a_, launch_);
    __syncthreads();
    const int2 range = shared_.table.range();
    if (range.x == range.y) return wait_for_inputs();
    const KvSplit first = split_of(range.x);
    Walk walk = walk_of(a_, launch_, first);
    // Pages hold what earlier passes wrote, so they are read ahead of the inputs.
    bool loaded = launch_.fresh && first_of(walk) < walk.end;
    if (loaded) look_ahead(walk);
    load_rotations(first.row);
    __syncthreads();
    wait_for_inputs();
#pragma unroll 1
    for (int number = range.x; number < range.y; ++number) {
      take_row(shared_.splits[number % 2], number == range.x, walk);
      Walk next;
      if (number + 1 < range.y) next = walk_of(a_, launch_, split_of(number + 1));
      loaded = go(walk, next, loaded);
      write(shared_.splits[number % 2]);
      walk = next;
    }
  }

 private:
  __device__ __forceinline__ int head_dim() const { return kExact ? kDim : a_.head_dim; }
  /// Returns the lines of keys (or values) from a token on.
  template <KvSide kSide>
  __device__ __forceinline__ KvStepLines lines_of(int64_t page, int kv_head, int token) const {
    const uint8_t* pool = (kSide == KvSide::keys ? a_.kv.keys : a_.kv.values) + page;
    const KvLineAt at = line_in_page<kFormat, kSide>(kv_head, token % kPage, head_dim());
    return {.codes = pool + at.codes,
            .scales = pool + at.scales,
            .code_bytes = static_cast<int>(kv_code_bytes(kFormat, head_dim())),
            .scale_bytes = static_cast<int>(kv_scale_bytes(kFormat, kSide, head_dim()))};
  }
  /// All warps look it up; the block finds it in shared memory after the next barrier.
  __device__ __forceinline__ KvSplit split_of(int number) {
    const KvSplit split = shared_.table.at(launch_, number);
    if (threadIdx.x == 0) shared_.splits[number % 2] = split;
    return split;
  }
  /// Returns the first token of this warp.
  __device__ __forceinline__ int first_of(const Walk& walk) const {
    return walk.begin + warp_ * Step::kTokens;
  }

  /// Sets the tokens that are loaded next, and looks up their page.
  __device__ __forceinline__ void aim(Walk& walk, int first) {
    page_ = page_of(a_, walk, first);
    first_ = first;
    kv_head_ = walk.kv_head;
    tokens_ = min(Step::kTokens, min(walk.end, walk.own) - first);
  }
  __device__ __forceinline__ void load_keys(int half) {
    if (tokens_ > 0)
      step_.load_keys(lines_of<KvSide::keys>(page_, kv_head_, first_), tokens_, half);
  }
  __device__ __forceinline__ void load_values(int half) {
    if (tokens_ > 0)
      step_.load_values(lines_of<KvSide::values>(page_, kv_head_, first_), tokens_, half);
  }
  __device__ __forceinline__ void begin_loads(Walk& walk) {
    aim(walk, first_of(walk));
    load_keys(0);
    load_keys(1);
    load_values(0);
  }
  /// Begins to load the first step, and fetches the second into the L2.
  __device__ __forceinline__ void look_ahead(Walk& walk) {
    begin_loads(walk);
    const int second = first_of(walk) + kBlockTokens;
    const int tokens = min(Step::kTokens, min(walk.end, walk.own) - second);
    if (tokens <= 0) return;
    Walk copy = walk;
    const int64_t page = page_of(a_, copy, second);
    const KvStepLines keys = lines_of<KvSide::keys>(page, walk.kv_head, second);
    const KvStepLines values = lines_of<KvSide::values>(page, walk.kv_head, second);
    for (int at = static_cast<int>(threadIdx.x) % 32 * 128; at < tokens * keys.code_bytes;
         at += 32 * 128) {
      prefetch_l2(keys.codes + at);
      prefetch_l2(values.codes + at);
    }
  }

  /// Loads the rotations of a row; a barrier must follow.
  __device__ __forceinline__ void load_rotations(int row) {
    const auto pair = static_cast<int>(threadIdx.x);
    if (pair < a_.rope.pairs)
      shared_.rotations[pair] = rotation_of(a_, launch_.row_begin + row, pair);
  }
  /// Loads the queries of a split's row if they change, and the row's own token if it is here.
  __device__ __forceinline__ void take_row(const KvSplit& split, bool first, const Walk& walk) {
    const bool changes = first || split.index == 0;
    const bool own = walk.own < INT_MAX;
    if (!changes && !own) return;
    const int row = launch_.row_begin + split.row;
    const int64_t stride = a_.output_gate ? 2 * head_dim() : head_dim();
    const float* q = a_.q + (static_cast<int64_t>(row) * a_.q_heads + split.first_head) * stride;
    const int64_t kv_at = (static_cast<int64_t>(row) * a_.kv_heads + split.kv_head) * head_dim();
    HeadPart heads[3] = {};  // two of q, then k or v
    HeadPart q_weight = {}, k_weight = {};
    if (changes) {
#pragma unroll
      for (int k = 0; k < 2; ++k)
        if (warp_ + kWarps * k < split.heads)
          heads[k] = load_head(q + (warp_ + kWarps * k) * stride, head_dim());
      q_weight = load_head(a_.q_norm, head_dim());
    }
    if (own && warp_ == 0) {
      heads[2] = load_head(a_.k + kv_at, head_dim());
      k_weight = load_head(a_.k_norm, head_dim());
    }
    if (own && warp_ == 1) heads[2] = load_head(a_.v + kv_at, head_dim());
    if (changes && !first) load_rotations(split.row);
    auto& before = shared_.heads[warp_];
    if (changes) {
      norm_head(a_, q_weight, heads[0], before[0]);
      norm_head(a_, q_weight, heads[1], before[1]);
    }
    if (own && warp_ == 0) norm_head(a_, k_weight, heads[2], before[2]);
    __syncthreads();
    if (changes) rotate_heads<2>(a_.rope.pairs, shared_.rotations, before[0]);
    if (own && warp_ == 0) rotate_heads<1>(a_.rope.pairs, shared_.rotations, before[2]);
    __syncwarp();
    if (changes) {
      turn_query<kFormat>(before[0], head_dim());
      turn_query<kFormat>(before[1], head_dim());
      store_query(before[0], warp_);
      store_query(before[1], warp_ + kWarps);
    }
    if (own && warp_ == 0) heads[2] = load_head(before[2], kHeadDimMax);
    if (own && warp_ < 2) store_own(split, walk, heads[2]);
    __syncthreads();
  }
  /// Stores a query as a left operand: its numbers in row `head`, what their rounding leaves in row
  /// 8 + head.
  __device__ __forceinline__ void store_query(const float* from, int head) {
    const float scale = rsqrtf(static_cast<float>(head_dim())) * kLog2E;
#pragma unroll
    for (int j = 0; j < (16 * Step::kProducts + 127) / 128; ++j) {
      const int d = HeadPart::element(j);
      if (d >= 16 * Step::kProducts) continue;  // those beyond head_dim are zero
      float x[4];
      load_quad(from + d, x);
#pragma unroll
      for (int e = 0; e < 4; ++e) x[e] *= scale;
      const uint32_t low = Elements::pair(x[0], x[1]);
      const uint32_t high = Elements::pair(x[2], x[3]);
      const int place = Elements::key_place(d);
      shared_.queries[place / 4][4 * head + place % 4] =
          make_uint4(low, Elements::rest(x[0], x[1], low), high, Elements::rest(x[2], x[3], high));
    }
  }
  /// Stores k (warp 0) or v (warp 1) of the row's own token for this block and in its page.
  __device__ __forceinline__ void store_own(const KvSplit& split, const Walk& walk,
                                            const HeadPart& head) {
    if (warp_ == 0)
      store_own_line<KvSide::keys>(split, walk, head);
    else
      store_own_line<KvSide::values>(split, walk, by_scale(head, a_.value_scale));
  }
  template <KvSide kSide>
  __device__ __forceinline__ void store_own_line(const KvSplit& split, const Walk& walk,
                                                 const HeadPart& head) {
    constexpr int kNumbers = Step::kLineBytes * 8 / kv_traits(kFormat).keys.element_bits;
    uint8_t* scales = shared_.own_scales[warp_];
    store_line<kFormat, kSide>(shared_.own[warp_], scales, head, head_dim(), kNumbers);
    if (split.first_head != split.kv_head * launch_.group) return;
    Walk copy = walk;
    const int64_t page = page_of(a_, copy, walk.own);
    const KvLineAt at = line_in_page<kFormat, kSide>(walk.kv_head, walk.own % kPage, head_dim());
    uint8_t* pool = (kSide == KvSide::keys ? a_.kv.keys : a_.kv.values) + page;
    if constexpr (kv_traits(kFormat).keys.element_bits == 4) {
      // A copy, since the block waits for this warp, and making 4-bit codes is long.
      __syncwarp();
      copy_bytes<uint32_t>(pool + at.codes, shared_.own[warp_], kv_code_bytes(kFormat, head_dim()));
      copy_bytes<uint8_t>(pool + at.scales, scales, kv_scale_bytes(kFormat, kSide, head_dim()));
    } else {
      store_line<kFormat, kSide>(pool + at.codes, pool + at.scales, head, head_dim(), head_dim());
    }
  }
  /// Copies by one warp; `bytes` is a multiple of a word's.
  template <typename Word>
  static __device__ __forceinline__ void copy_bytes(uint8_t* to, const uint8_t* from,
                                                    int64_t bytes) {
    const auto words = static_cast<int>(bytes) / static_cast<int>(sizeof(Word));
    for (int i = static_cast<int>(threadIdx.x) % 32; i < words; i += 32)
      reinterpret_cast<Word*>(to)[i] = reinterpret_cast<const Word*>(from)[i];
  }

  /// Computes the tokens of this warp; when it returns true, those that follow them are being
  /// loaded.
  __device__ __forceinline__ bool go(Walk& walk, Walk& next, bool loaded) {
    highest_ = -INFINITY;
    total_ = 0.0F;
    least_ = 0.0F;
#pragma unroll
    for (int i = 0; i < Step::kTiles; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) out_[i][e] = 0.0F;
    int first = first_of(walk);
    if (first >= walk.end) return false;
    if (!loaded) begin_loads(walk);
    const bool next_has = first_of(next) < next.end;
    for (;;) {
      const int own = walk.own - first;  // its place in this step
      if (own < Step::kTokens) {
        step_.replace_keys(shared_.own[0], shared_.own_scales[0], own);
        step_.replace_values(shared_.own[1], shared_.own_scales[1], own, 0);
      }
      float s[2 * kGroups][2];
#pragma unroll
      for (int group = 0; group < kGroups; ++group) score(group, s);
      if (a_.skips_first && first == 0 && q_ == 0) s[0][0] = -INFINITY;
      load_values(1);
      if (own < Step::kTokens) step_.replace_values(shared_.own[1], shared_.own_scales[1], own, 1);
      const int left = walk.end - first;
      const bool more = left > kBlockTokens;
      const bool goes_on = more || next_has;
      if (more) {
        aim(walk, first + kBlockTokens);
      } else if (next_has) {
        aim(next, first_of(next));
      }
      if (goes_on) load_keys(0);
      uint32_t weights[kGroups][kParts][2];
      softmax(s, left, weights);
      accumulate<0>(weights);
      if (goes_on) load_keys(1);
      accumulate<1>(weights);
      if (goes_on) load_values(0);
      if (!more) return next_has;
      first += kBlockTokens;
    }
  }

  /// Computes the scores s of head g and tokens 8e + 2q, + 1 of a group of 16. Each is two sums,
  /// which are added at the end.
  __device__ __forceinline__ void score(int group, float (&s)[2 * kGroups][2]) const {
    float sums[2][2][4] = {};
#pragma unroll
    for (int k = 0; k < Step::kProducts; ++k) {
      const uint4 a = shared_.queries[k][threadIdx.x % 32];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        uint32_t b[2];
        step_.key_operand(2 * group + e, k, b);
        mma_16x8x16<Elements::kOperands>(sums[e][k % 2], a.x, a.y, a.z, a.w, b[0], b[1]);
      }
    }
#pragma unroll
    for (int e = 0; e < 2; ++e)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        s[2 * group + e][i] =
            (sums[e][0][i] + sums[e][1][i]) + (sums[e][0][i + 2] + sums[e][1][i + 2]);
    if constexpr (Step::kLineScales) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float2 factors = step_.key_factors(2 * group + e);
        s[2 * group + e][0] *= factors.x;
        s[2 * group + e][1] *= factors.y;
      }
    }
  }

  /// Turns scores into weights relative to the running maximum. `left` is the number of tokens from
  /// the first on.
  __device__ __forceinline__ void softmax(float (&s)[2 * kGroups][2], int left,
                                          uint32_t (&weights)[kGroups][kParts][2]) {
    float top = -INFINITY;
#pragma unroll
    for (int e = 0; e < 2 * kGroups; ++e)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (8 * e + 2 * q_ + i >= left) s[e][i] = -INFINITY;
        top = fmaxf(top, s[e][i]);
      }
    top = fmaxf(quad_max(top), highest_);
    const float rescale = exp2f(highest_ - top);
    highest_ = top;
    float sum = 0.0F;
#pragma unroll
    for (int e = 0; e < 2 * kGroups; ++e)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        s[e][i] = 8 * e + 2 * q_ + i >= left ? 0.0F : exp2f(s[e][i] - top);
        sum += s[e][i];
      }
    total_ = fmaf(total_, rescale, sum);
    if constexpr (Step::kLineScales) weigh_lines(s, left, rescale);
#pragma unroll
    for (int e = 0; e < 2 * kGroups; ++e) {
      const uint32_t pair = Elements::pair(s[e][0], s[e][1]);
      weights[e / 2][0][e % 2] = pair;
      if constexpr (kParts == 2) weights[e / 2][1][e % 2] = Elements::rest(s[e][0], s[e][1], pair);
    }
    if (__any_sync(kAllLanes, rescale != 1.0F)) {
      float of_head[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) of_head[h] = __shfl_sync(kAllLanes, rescale, 8 * q_ + 4 * h);
#pragma unroll
      for (int i = 0; i < Step::kTiles; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) out_[i][e] *= of_head[e % 2];
    }
  }

  /// Multiplies weights by the steps of their values, and adds up the least numbers. The bytes of
  /// tokens from `left` on mean nothing.
  __device__ __forceinline__ void weigh_lines(float (&s)[2 * kGroups][2], int left, float rescale) {
    float sum = 0.0F;
#pragma unroll
    for (int e = 0; e < 2 * kGroups; ++e)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (8 * e + 2 * q_ + i >= left) continue;  // the weight is zero
        const float2 line = step_.value_line(e, i);
        sum = fmaf(s[e][i], line.y, sum);
        s[e][i] *= line.x;
      }
    least_ = fmaf(least_, rescale, sum);
  }

  /// Multiplies the values of one half, as load_values() has them.
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
        mma_16x8x16<Elements::kOperands>(out_[i], x[0], x[1], x[2], x[3], weights[kGroup][part][0],
                                         weights[kGroup][part][1]);
    }
  }

  /// Adds up the results of the warps in their order.
  __device__ __forceinline__ void write(const KvSplit& split) {
    const float total = quad_sum(total_);
    const float least = Step::kLineScales ? quad_sum(least_) : 0.0F;
    if (q_ == 0)
      *reinterpret_cast<float4*>(&shared_.out[warp_][g_][kDim]) =
          make_float4(highest_, total, least, 0.0F);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float* mine = shared_.out[warp_][2 * q_ + h];
#pragma unroll
      for (int i = 0; i < Step::kTiles; ++i) {
        const int d = Elements::out_dims(i, g_);
        if (d < kDim)
          *reinterpret_cast<float2*>(mine + d) = make_float2(out_[i][h], out_[i][h + 2]);
      }
    }
    __syncthreads();
    const int head = static_cast<int>(threadIdx.x) / kHeadThreads;
    if (head < split.heads) add_warps(split, head);
    __syncthreads();
  }
  /// Adds up one head by kHeadThreads threads.
  __device__ __forceinline__ void add_warps(const KvSplit& split, int head) const {
    float highest = -INFINITY;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) highest = fmaxf(highest, shared_.out[w][head][kDim]);
    float scales[kWarps];
    float total = 0.0F;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float own = shared_.out[w][head][kDim];
      scales[w] = own == -INFINITY ? 0.0F : exp2f(own - highest);
      total = fmaf(scales[w], shared_.out[w][head][kDim + 1], total);
    }
    const float part = 1.0F / total;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) scales[w] *= part;
    float least = 0.0F;  // of all dimensions
    if constexpr (Step::kLineScales) {
#pragma unroll
      for (int w = 0; w < kWarps; ++w)
        least = fmaf(scales[w], shared_.out[w][head][kDim + 2], least);
    }
    uint8_t* to = partial_at(a_, split.row, split.first_head + head, split.index);
    const int lane = static_cast<int>(threadIdx.x) % kHeadThreads;
#pragma unroll
    for (int d = 4 * lane; d < kDim; d += 4 * kHeadThreads) {
      float4 sum = make_float4(least, least, least, least);
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        const float4 x = *reinterpret_cast<const float4*>(&shared_.out[w][head][d]);
        sum.x = fmaf(scales[w], x.x, sum.x);
        sum.y = fmaf(scales[w], x.y, sum.y);
        sum.z = fmaf(scales[w], x.z, sum.z);
        sum.w = fmaf(scales[w], x.w, sum.w);
      }
      if (d < a_.head_dim)
        reinterpret_cast<uint2*>(to)[d / 4] =
            make_uint2(to_f16_pair(sum.x, sum.y), to_f16_pair(sum.z, sum.w));
    }
    if (lane == 0) *partial_weights(a_, to) = make_float2(highest, total);
  }

  const AttentionArgs& a_;
  const AttendLaunch& launch_;
  Shared& shared_;
  int warp_, g_, q_;
  Step step_;
  int64_t page_ = 0;  // of the tokens last asked for
  int first_ = 0;
  int kv_head_ = 0;
  int tokens_ = 0;
  float out_[Step::kTiles][4];  // dims out_dims(i), + 1; heads 2q, 2q + 1: [dim][head]
  float highest_, total_;       // of head g; of this lane's tokens
  float least_;                 // their weights times the least numbers of their values
};

}  // namespace nibble::cuda
