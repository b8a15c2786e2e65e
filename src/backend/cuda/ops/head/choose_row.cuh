// One row's choice, as each of its thread blocks takes part in it: cut, draw, describe.
#pragma once

#include "backend/cuda/ops/head/choose_cut.cuh"
#include "backend/cuda/ops/head/choose_slice.cuh"

namespace nibble::cuda::choosing {

struct Chooser : RowSlice {
  ChosenRow* result;
  int round = 0;       // histograms made
  float best = 0.0F;   // logit after bias and penalties
  float worst = 0.0F;  // above -infinity

  __device__ uint64_t weight(uint32_t key) const {
    return key > kImpossible ? choice_weight(logit_of(key), best, row.rule.scale) : 0;
  }

  /// The cut that a histogram of the keys by bin_of leads to; bin_of is -1 for keys outside of
  /// `outer`.
  template <typename BinOf>
  __device__ Cut narrow(const Goal& goal, const Cut& outer, const BinOf& bin_of) {
    clear(s.histogram, goal.weighs);
    __syncthreads();
    for_each_key([&](uint32_t key, int) {
      const int bin = key > 0 ? bin_of(key) : -1;
      if (bin < 0) return;
      atomicAdd(&s.histogram.count[bin], 1U);
      if (goal.weighs) add_weight(s.histogram, bin, weight(key));
    });
    __syncthreads();
    // All blocks have read the memory of the next histogram, and none adds to it before the
    // barrier.
    if (leads()) clear(state->histograms[(round + 1) % kHistograms]);
    RowHistogram& whole = state->histograms[round % kHistograms];
    merge(s.histogram, whole, goal.weighs);
    row_barrier();
    ++round;
    return find_bin(whole, goal, outer, s);
  }

  /// Narrows a cut to one of equal steps between the best and the worst logit, then to ranges of
  /// keys, until no more than kChoiceListMost tokens are in it or above it, or one key is in it.
  __device__ Cut find_cut(const Goal& goal) {
    const float range = best - worst;
    const float steps = range > 0.0F && range < INFINITY ? kBins / range : 0.0F;
    const auto linear = [&](uint32_t key) {
      return min(kBins - 1, __float2int_rz((best - logit_of(key)) * steps));
    };
    Cut cut = narrow(goal, Cut{}, linear);
    const uint32_t top = key_of(best);
    cut.low = first_key(kImpossible, top, [&](uint32_t key) { return linear(key) <= cut.bin; });
    cut.high = first_key(kImpossible, top, [&](uint32_t key) { return linear(key) < cut.bin; }) - 1;
    while (cut.low < cut.high && cut.through() > kChoiceListMost) {
      const int shift = max(0, 32 - __clz(static_cast<int>(cut.high - cut.low)) - kBinBits);
      Cut next = narrow(goal, cut, [&](uint32_t key) {
        return key >= cut.low && key <= cut.high ? static_cast<int>((cut.high - key) >> shift) : -1;
      });
      const uint32_t width = (1U << shift) - 1;
      next.high = cut.high - (static_cast<uint32_t>(next.bin) << shift);
      next.low = next.high - cut.low > width ? next.high - width : cut.low;
      cut = next;
    }
    return cut;
  }

  /// Tells the other blocks how many of this one's keys are `key`, and returns how many there are
  /// in the slices before.
  __device__ uint32_t ties_before(uint32_t key) {
    uint32_t own = 0;
    uint32_t all = 0;
    for_each_key([&](uint32_t other, int) { own += other == key; });
    block_exclusive_sum(own, all, s);
    if (threadIdx.x == 0) __stcg(&state->slice_ties[slice], all);
    row_barrier();
    uint32_t before = 0;
    for (int i = 0; i < slice; ++i) before += __ldcg(&state->slice_ties[i]);
    return before;
  }

  /// Appends all tokens down to a cut, in no order, and of a cut of one key the first ones.
  __device__ void append(const Cut& cut, TokenList& list) {
    if (cut.through() <= kChoiceListMost) {
      for_each_key([&](uint32_t key, int token) {
        if (key > 0 && key >= cut.low) put(list, key, token);
      });
      return;
    }
    const uint32_t ties = cut.ties(0);
    uint32_t rank = ties_before(cut.low);
    for (int four = 0; four < kFours; ++four) {
      const uint4 keys = keys_of(four);
      uint32_t own = 0;
      uint32_t all = 0;
      for (const uint32_t key : {keys.x, keys.y, keys.z, keys.w}) own += key == cut.low;
      uint32_t at = rank + block_exclusive_sum(own, all, s);
      rank += all;
      int k = 0;
      for (const uint32_t key : {keys.x, keys.y, keys.z, keys.w}) {
        const bool tie = key == cut.low;
        if (key > cut.low || (tie && at < ties)) put(list, key, token_of(four, k));
        at += tie;
        ++k;
      }
    }
  }
  __device__ static void put(TokenList& list, uint32_t key, int token) {
    __stcg(&list.entries[atomicAdd(&list.count, 1U)],
           static_cast<unsigned long long>(entry_of(key, token)));
  }

  /// Returns the token drawn from the row's list, which has all tokens that may be kept. One block
  /// does it.
  /// `total`: the weight that top-p is a share of; 0: that of the list's first top_k.
  __device__ int draw_from_list(uint64_t total) {
    int count = load_list(state->list, s);
    sort_down(count, s);
    if (row.rule.top_k > 0) count = min(count, row.rule.top_k);
    const auto weight_at = [&](int i) {
      return i < count ? weight(key_of_entry(s.list[i])) : uint64_t{0};
    };
    const int first = kEach * static_cast<int>(threadIdx.x);
    uint64_t sum = 0;
    uint64_t own_sum = 0;
    for (int i = first; i < first + kEach; ++i) own_sum += weight_at(i);
    uint64_t before = block_exclusive_sum(own_sum, sum, s);
    if (row.rule.top_p != ChoiceRule::kKeepAll) {
      const uint64_t bound = nucleus_bound(total > 0 ? total : sum, row.rule.top_p);
      uint32_t own = 0;
      for (int i = first; i < first + kEach; ++i) {
        own += i < count && before < bound;
        before += weight_at(i);
      }
      uint32_t kept = 0;
      block_exclusive_sum(own, kept, s);
      count = static_cast<int>(kept);
    }
    __syncthreads();
    for (int place = static_cast<int>(threadIdx.x); place < kChoiceListMost; place += kThreads)
      s.list[place] = place < count ? swap_halves(s.list[place]) : 0;  // by token now
    __syncthreads();
    sort_down(count, s);
    const auto weight_by_token = [&](int at) {
      return at < count ? weight(key_of_entry(swap_halves(s.list[at]))) : uint64_t{0};
    };
    own_sum = 0;
    for (int at = first; at < first + kEach; ++at) own_sum += weight_by_token(at);
    before = block_exclusive_sum(own_sum, sum, s);
    const uint64_t target = choice_target(sum, row.rule.u);
    for (int at = first; at < first + kEach; ++at) {
      const uint64_t w = weight_by_token(at);
      if (before <= target && target < before + w)
        s.token = token_of_entry(swap_halves(s.list[at]));
      before += w;
    }
    __syncthreads();
    return s.token;
  }

  /// The token drawn from all keys above `low` and the first `ties` tokens of that key; -1 in the
  /// blocks that the draw does not fall in.
  __device__ int draw_from_slices(uint32_t low, uint32_t ties) {
    uint64_t own = 0;
    uint32_t equal = 0;
    for_each_key([&](uint32_t key, int) {
      if (key > low) own += weight(key);
      equal += key > 0 && key == low;
    });
    uint64_t slice_sum = 0;
    uint32_t slice_ties = 0;
    block_exclusive_sum(own, slice_sum, s);
    block_exclusive_sum(equal, slice_ties, s);
    if (threadIdx.x == 0) {
      __stcg(&state->slice_sum[slice], slice_sum);
      __stcg(&state->slice_ties[slice], slice_ties);
    }
    row_barrier();
    const uint64_t tie = ties > 0 ? weight(low) : 0;
    uint64_t total = 0;
    uint64_t before = 0;
    uint32_t ties_before = 0;
    uint32_t seen = 0;
    for (int i = 0; i < slices; ++i) {
      if (i == slice) before = total, ties_before = min(seen, ties);
      const uint32_t here = __ldcg(&state->slice_ties[i]);
      total += __ldcg(&state->slice_sum[i]) + tie * (min(seen + here, ties) - min(seen, ties));
      seen += here;
    }
    const uint64_t target = choice_target(total, row.rule.u);
    const uint32_t ties_here = min(slice_ties, ties - ties_before);
    if (target < before || target >= before + slice_sum + tie * ties_here) return -1;
    return pick(low, ties_here, tie, target - before);
  }

  /// The token of this slice at which the weights exceed `target`, in the order of tokens.
  __device__ int pick(uint32_t low, uint32_t ties, uint64_t tie, uint64_t target) {
    uint64_t before = 0;
    uint32_t ties_before = 0;
    for (int four = 0; four < kFours; ++four) {
      const uint4 keys = keys_of(four);
      uint64_t own = 0;
      uint32_t equal = 0;
      for (const uint32_t key : {keys.x, keys.y, keys.z, keys.w}) {
        if (key > low) own += weight(key);
        equal += key > 0 && key == low;
      }
      uint64_t sum = 0;
      uint32_t all_equal = 0;
      uint64_t at = before + block_exclusive_sum(own, sum, s);
      uint32_t rank = ties_before + block_exclusive_sum(equal, all_equal, s);
      int k = 0;
      for (const uint32_t key : {keys.x, keys.y, keys.z, keys.w}) {
        const bool equals = key > 0 && key == low;
        const uint64_t from = at + tie * min(rank, ties);
        const uint64_t above = key > low ? weight(key) : 0;
        const uint64_t w = equals && rank < ties ? tie : above;
        if (from <= target && target < from + w) s.token = token_of(four, k);
        at += above;
        rank += equals;
        ++k;
      }
      before += sum;
      ties_before += all_equal;
    }
    __syncthreads();
    return s.token;
  }

  /// The token drawn from what a list down to a cut may keep; -1 in all blocks but the leading one.
  __device__ int draw_by_list(const Cut& cut, uint64_t total) {
    append(cut, state->list);
    arrive();
    // A block may arrive again only after it waited: the leading block counts arrivals alone.
    if (!leads() && row.rule.top_logprobs < 0) return -1;
    wait();
    return leads() ? draw_from_list(total) : -1;
  }

  /// Returns the token in one block, and -1 in the others.
  __device__ int choose() {
    const uint64_t first = __ldcg(&state->first);
    if (row.rule.scale == 0.0F || !(fabsf(best) < INFINITY))
      return leads() ? token_of_entry(first) : -1;
    if (row.rule.min_weight > 0)
      change_keys([&](uint32_t key) { return weight(key) < row.rule.min_weight ? 0U : key; });
    const auto rank = static_cast<uint32_t>(row.rule.top_k);
    const bool by_share = row.rule.top_p != ChoiceRule::kKeepAll;
    if (rank == 0 && !by_share) return draw_from_slices(0U, 0U);
    const bool short_rank = rank > 0 && rank <= kChoiceListMost;
    Cut cut = find_cut({.rank = rank, .share = row.rule.top_p, .weighs = !short_rank});
    if (short_rank) return draw_by_list(cut, 0);
    if (cut.through() <= kChoiceListMost) return draw_by_list(cut, rank > 0 ? 0 : cut.total_weight);
    // One key is in the cut, and the first `ties` of its tokens are kept.
    uint32_t ties = cut.ties(weight(cut.low));
    if (rank > 0 && by_share) {
      const uint64_t kept = cut.weight_before + ties * weight(cut.low);
      change_keys([&](uint32_t key) { return key < cut.low ? 0U : key; });
      const Cut share = find_cut({.share = row.rule.top_p, .total = kept, .weighs = true});
      if (share.through() <= kChoiceListMost) return draw_by_list(share, kept);
      const uint32_t of_share = share.ties(weight(share.low));
      ties = share.low == cut.low ? min(ties, of_share) : of_share;
      cut = share;
    }
    return draw_from_slices(cut.low, ties);
  }

  /// Computes what is reported of the raw logits, which ends a row with log-probabilities.
  __device__ void describe(int token) {
    const uint32_t chosen_key = key_of(__ldcg(logits + token));
    const uint64_t chosen = entry_of(chosen_key, token);
    best = logit_of(__ldcg(&state->raw_best));
    const bool finite = fabsf(best) < INFINITY;
    uint64_t own_mass = 0;
    uint32_t own_better = 0;
#pragma unroll 2
    for (int four = 0; four < kFours; ++four) {
      const float4 raw = four_logits(token_of(four, 0));
      if (finite)
        for (const float x : {raw.x, raw.y, raw.z, raw.w})
          own_mass += choice_weight(x, best, kLog2E);
      keys_of(four) = keys_of_logits(raw, token_of(four, 0), nullptr);
    }
    for_each_key([&](uint32_t key, int token_here) {
      own_better += key > 0 && entry_of(key, token_here) > chosen;
    });
    uint64_t mass = 0;
    uint32_t better = 0;
    block_exclusive_sum(own_mass, mass, s);
    block_exclusive_sum(own_better, better, s);
    if (threadIdx.x == 0) {
      atomicAdd(&state->mass, static_cast<unsigned long long>(mass));
      atomicAdd(&state->better, better);
    }
    if (row.rule.top_logprobs > 0)
      append(find_cut({.rank = static_cast<uint32_t>(row.rule.top_logprobs)}), state->top);
    arrive();
    if (!leads()) return;
    wait();
    int listed = 0;
    if (row.rule.top_logprobs > 0) {
      listed = load_list(state->top, s);
      sort_down(listed, s);
      listed = min(listed, row.rule.top_logprobs);
    }
    ChosenRow& out = *result;
    if (static_cast<int>(threadIdx.x) < listed) {
      const uint64_t entry = s.list[threadIdx.x];
      out.top[threadIdx.x] = {token_of_entry(entry), __ldcg(logits + token_of_entry(entry))};
    }
    if (threadIdx.x != 0) return;
    out.mass = __ldcg(&state->mass);
    out.rank = 1 + static_cast<int32_t>(__ldcg(&state->better));
    out.top_count = listed;
    out.logit = __ldcg(logits + token);
    out.best = best;
    tell(token);
  }

  __device__ void tell(int token) {
    result->token = token;
    result->sound = __ldcg(&state->unsound) == 0 ? 1 : 0;
  }

  __device__ void run() {
    load();
    const bool described = row.rule.top_logprobs >= 0;
    arrive();
    if (row.rule.scale == 0.0F && !described && !leads()) return;
    wait();
    const uint64_t first = __ldcg(&state->first);
    if (__ldcg(&state->unsound) != 0 || first == 0) {
      if (leads() && threadIdx.x == 0) tell(-1);
      return;
    }
    best = logit_of(key_of_entry(first));
    worst = logit_of(~__ldcg(&state->last));
    int token = choose();
    if (!described) {
      if (token >= 0 && threadIdx.x == 0) tell(token);
      return;
    }
    if (token >= 0 && threadIdx.x == 0) __stcg(&state->chosen, token);
    row_barrier();
    token = __ldcg(&state->chosen);
    describe(token);
  }
};

}  // namespace nibble::cuda::choosing
