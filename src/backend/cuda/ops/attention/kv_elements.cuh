// The formats of KV pages as kernels read and write them: KvElements<format> in kv_plain.cuh and
// kv_four_bits.cuh, how lines lie in a page, and the lists of formats; a format is added there and
// in these lists.
#pragma once

#include "backend/cuda/ops/attention/kv_four_bits.cuh"
#include "backend/cuda/ops/attention/kv_plain.cuh"
#include "backend/cuda/runtime/with_value.h"

namespace nibble::cuda {

inline constexpr int kPage = 64;  // tokens

/// The offsets of a line in its page, from the keys (or values) of a layer on: 64 lines of a head
/// follow those of the head before, first the numbers of all, then the scales of all.
struct KvLineAt {
  int64_t codes = 0;
  int64_t scales = 0;
};
template <KvFormat kFormat, KvSide kSide>
__device__ __forceinline__ KvLineAt line_in_page(int head, int slot, int head_dim) {
  const int codes = static_cast<int>(kv_code_bytes(kFormat, head_dim));
  const int scales = static_cast<int>(kv_scale_bytes(kFormat, kSide, head_dim));
  const int begin = head * kPage * (codes + scales);
  return {begin + slot * codes, begin + kPage * codes + slot * scales};
}

/// Calls act.operator()<format>() for a format that kernels multiply on tensor cores.
template <typename Act>
decltype(auto) with_kv_format(KvFormat format, const Act& act) {
  return with_value<KvFormat::bf16, KvFormat::fp8, KvFormat::turboquant_4bit_nc, KvFormat::nvfp4>(
      format, act);
}
/// Does the same for any format.
template <typename Act>
decltype(auto) with_any_kv_format(KvFormat format, const Act& act) {
  return with_value<KvFormat::f32, KvFormat::bf16, KvFormat::fp8, KvFormat::turboquant_4bit_nc,
                    KvFormat::nvfp4>(format, act);
}

}  // namespace nibble::cuda
