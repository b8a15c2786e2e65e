// A thread block's part of a row: the keys of its slice, its barrier with the other thread blocks
// of the row, and how logits, bias and penalties become keys.
#pragma once

#include "backend/cuda/ops/head/choose_parts.cuh"

namespace nibble::cuda::choosing {

/// One thread block's slice of a row.
struct RowSlice {
  const ChooseArgs& a;
  Scratch& s;
  const ChoiceRow& row;
  RowState* state;
  const float* logits;
  int slices;
  int slice;
  uint32_t expected = 0;  // arrivals that complete the last barrier

  __device__ bool leads() const { return slice == 0; }
  __device__ int begin() const { return slice * kSliceLogits; }
  // A thread has 4 * kFours keys in shared memory, for four adjacent tokens each; the key of
  // a token that may not be chosen is 0.
  __device__ int token_of(int four, int k) const {
    return begin() + 4 * (four * kThreads + static_cast<int>(threadIdx.x)) + k;
  }
  __device__ uint4& keys_of(int four) { return s.keys[four * kThreads + threadIdx.x]; }
  /// Calls f(key, token) for each key of the thread.
  template <typename F>
  __device__ void for_each_key(const F& f) {
#pragma unroll 2
    for (int four = 0; four < kFours; ++four) {
      const uint4 keys = keys_of(four);
      f(keys.x, token_of(four, 0));
      f(keys.y, token_of(four, 1));
      f(keys.z, token_of(four, 2));
      f(keys.w, token_of(four, 3));
    }
  }
  /// Replaces each key that is not 0 by f(key).
  template <typename F>
  __device__ void change_keys(const F& f) {
#pragma unroll 2
    for (int four = 0; four < kFours; ++four) {
      uint4& keys = keys_of(four);
      const auto changed = [&](uint32_t key) { return key > 0 ? f(key) : 0U; };
      keys = make_uint4(changed(keys.x), changed(keys.y), changed(keys.z), changed(keys.w));
    }
  }

  /// Makes the writes of this block visible to blocks that wait for `expected` arrivals.
  __device__ void arrive() {
    expected += static_cast<uint32_t>(slices);
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      atomicAdd(&state->arrived, 1U);
    }
  }
  __device__ void wait() {
    if (threadIdx.x == 0) {
      const volatile uint32_t& arrived = state->arrived;
      while (arrived < expected) {
      }
      __threadfence();
    }
    __syncthreads();
  }
  /// A barrier of the thread blocks of the row.
  __device__ void row_barrier() {
    arrive();
    wait();
  }

  /// Returns four raw logits from `token` on; -infinity beyond the row.
  __device__ float4 four_logits(int token) const {
    if (a.vocab % 4 == 0 && token < a.vocab)
      return __ldcg(reinterpret_cast<const float4*>(logits + token));
    const auto at = [&](int i) {
      return token + i < a.vocab ? __ldcg(logits + token + i) : -INFINITY;
    };
    return make_float4(at(0), at(1), at(2), at(3));
  }

  /// Returns the keys of four adjacent tokens from `token` on; `mask` may be null.
  __device__ uint4 keys_of_logits(const float4& raw, int token, const uint32_t* mask) const {
    uint32_t allowed = a.sampleable[token / 32] >> (token % 32);
    if (mask != nullptr) allowed &= mask[token / 32] >> (token % 32);
    const auto key = [&](float x, int k) { return (allowed >> k & 1U) != 0 ? key_of(x) : 0U; };
    return make_uint4(key(raw.x, 0), key(raw.y, 1), key(raw.z, 2), key(raw.w, 3));
  }

  /// Loads the slice, and adds its maxima to those of the row.
  __device__ void load() {
    const uint32_t* mask =
        row.mask_row >= 0 ? a.masks + row.mask_row * choice_mask_words(a.vocab) : nullptr;
    Maxima maxima;
#pragma unroll
    for (int four = 0; four < kFours; ++four) {
      const int token = token_of(four, 0);
      const float4 raw = four_logits(token);
      const bool sound =
          raw.x < INFINITY && raw.y < INFINITY && raw.z < INFINITY && raw.w < INFINITY;
      maxima.unsound |= sound ? 0U : 1U;
      const float best_of_four = fmaxf(fmaxf(raw.x, raw.y), fmaxf(raw.z, raw.w));
      maxima.raw_best = max(maxima.raw_best, key_of(best_of_four));
      keys_of(four) = keys_of_logits(raw, token, mask);
    }
    if (row.bias_count > 0) apply_bias();
    if (row.counts_row >= 0) apply_penalties();
    for_each_key([&](uint32_t key, int token) {
      const uint64_t entry = entry_of(key, token);
      maxima.first = key > 0 && entry > maxima.first ? entry : maxima.first;
      maxima.last = key > kImpossible ? max(maxima.last, ~key) : maxima.last;
    });
    maxima = block_max(maxima, s);
    if (threadIdx.x != 0) return;
    atomicMax(&state->first, static_cast<unsigned long long>(maxima.first));
    atomicMax(&state->last, maxima.last);
    atomicMax(&state->raw_best, maxima.raw_best);
    if (maxima.unsound != 0) atomicOr(&state->unsound, 1U);
  }

  /// Biases of this slice are gathered, in their order, and then applied one after the other.
  __device__ void apply_bias() {
    for (int first = 0; first < row.bias_count; first += kThreads) {
      const int n = first + static_cast<int>(threadIdx.x);
      LogitBias entry;
      if (n < row.bias_count) entry = a.biases[row.bias_begin + n];
      const bool here = n < row.bias_count &&
                        static_cast<unsigned>(entry.token - begin()) < unsigned{kSliceLogits};
      uint32_t count = 0;
      const uint32_t place = block_exclusive_sum(here ? 1U : 0U, count, s);
      if (here) {
        s.biases.token[place] = entry.token;
        s.biases.bias[place] = entry.bias;
      }
      __syncthreads();
      for (uint32_t k = 0; k < count; ++k) add_bias(s.biases.token[k], s.biases.bias[k]);
      __syncthreads();
    }
  }

  __device__ void add_bias(int token, float bias) {
    const int place = token - begin();
    if (place / 4 % kThreads != static_cast<int>(threadIdx.x)) return;
    uint32_t& key = reinterpret_cast<uint32_t*>(s.keys)[place];
    if (key > 0) key = key_of(ordered_logit(choice::sum(logit_of(key), bias)));
  }

  __device__ void apply_penalties() {
    const uint16_t* counts = a.counts + row.counts_row * a.counts_stride;
#pragma unroll
    for (int four = 0; four < kFours; ++four) {
      const int token = token_of(four, 0);
      if (token >= a.counts_stride) continue;
      const uint2 said = __ldcg(reinterpret_cast<const uint2*>(counts + token));
      if ((said.x | said.y) == 0) continue;
      const auto changed = [&](uint32_t key, uint32_t entry) {
        if (key == 0 || entry == 0) return key;
        const auto count = static_cast<int32_t>(entry & kCountedMost);
        return key_of(ordered_logit(penalized(logit_of(key), row.rule, count)));
      };
      uint4& keys = keys_of(four);
      keys = make_uint4(changed(keys.x, said.x & 0xFFFFU), changed(keys.y, said.x >> 16),
                        changed(keys.z, said.y & 0xFFFFU), changed(keys.w, said.y >> 16));
    }
  }
};

}  // namespace nibble::cuda::choosing
