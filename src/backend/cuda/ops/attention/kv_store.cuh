// Stores one head of a row as the cache keeps it, by one warp: the same bits as model/kv_codec.h,
// step by step. Sums add halves to halves; the rotation goes by strides 1, 2, 4 ...
#pragma once

#include <utility>

#include "backend/cuda/ops/attention/attention_row.cuh"

namespace nibble::cuda {

/// Calls f(x, d) for the numbers of a lane and their dimensions.
template <typename F>
__device__ __forceinline__ void for_numbers(HeadPart& head, const F& f) {
#pragma unroll
  for (int j = 0; j < kHeadQuads; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) f(head.x[j][e], HeadPart::element(j) + e);
}

/// The sum over a warp's head, halves added to halves; numbers beyond head_dim are zero.
__device__ __forceinline__ float head_sum(const HeadPart& head) {
  float sums[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    sums[e] = __fadd_rn(head.x[0][e], head.x[1][e]);
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2)
      sums[e] = __fadd_rn(sums[e], __shfl_xor_sync(kAllLanes, sums[e], lane));
  }
  return __fadd_rn(__fadd_rn(sums[0], sums[2]), __fadd_rn(sums[1], sums[3]));
}
static_assert(kHeadQuads == 2, "the first step of head_sum()");

/// Multiplies a head by the Hadamard matrix of its size, a power of two from 4 up.
__device__ __forceinline__ void hadamard(HeadPart& head, int head_dim) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int j = 0; j < kHeadQuads; ++j) {
    float(&x)[4] = head.x[j];
    const float a = __fadd_rn(x[0], x[1]), b = __fsub_rn(x[0], x[1]);
    const float c = __fadd_rn(x[2], x[3]), d = __fsub_rn(x[2], x[3]);
    x[0] = __fadd_rn(a, c), x[1] = __fadd_rn(b, d);
    x[2] = __fsub_rn(a, c), x[3] = __fsub_rn(b, d);
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const bool within = 4 * step < head_dim;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float other = __shfl_xor_sync(kAllLanes, x[e], step);
        if (within) x[e] = (lane & step) != 0 ? __fsub_rn(other, x[e]) : __fadd_rn(x[e], other);
      }
    }
  }
  if (head_dim <= 128) return;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const float low = head.x[0][e];
    const float high = head.x[1][e];
    head.x[0][e] = __fadd_rn(low, high);
    head.x[1][e] = __fsub_rn(low, high);
  }
}
/// Turns a query as the format turns its keys.
template <KvFormat kFormat>
__device__ __forceinline__ void turn_query(HeadPart& head, int head_dim) {
  if constexpr (kv_traits(kFormat).rotates) {
    hadamard(head, head_dim);
    const float factor = __fdiv_rn(1.0F, __fsqrt_rn(static_cast<float>(head_dim)));
    for_numbers(head, [&](float& x, int) { x = __fmul_rn(x, factor); });
  }
}
/// The same for a head in shared memory [kHeadDimMax], by one warp.
template <KvFormat kFormat>
__device__ __forceinline__ void turn_query(float* shared, int head_dim) {
  if constexpr (kv_traits(kFormat).rotates) {
    __syncwarp();
    HeadPart head = load_head(shared, kHeadDimMax);
    turn_query<kFormat>(head, head_dim);
#pragma unroll
    for (int j = 0; j < kHeadQuads; ++j)
      *reinterpret_cast<float4*>(shared + HeadPart::element(j)) =
          make_float4(head.x[j][0], head.x[j][1], head.x[j][2], head.x[j][3]);
    __syncwarp();
  }
}

/// Stores x in F16; finite numbers beyond its range become the largest, others NaN. Returns it.
__device__ __forceinline__ float store_f16(uint8_t* to, float x) {
  const float kept = isfinite(x) ? fminf(fmaxf(x, -65504.0F), 65504.0F) : NAN;
  const __half code = __float2half_rn(kept);
  if (threadIdx.x % 32 == 0) *reinterpret_cast<__half*>(to) = code;
  return __half2float(code);
}
/// Stores four codes of a lane of the dimensions from d on; `dims` of them are stored.
__device__ __forceinline__ void store_codes(uint8_t* codes, int d, int dims,
                                            const uint32_t (&of)[4]) {
  if (d < dims)
    *reinterpret_cast<uint16_t*>(codes + d / 2) =
        static_cast<uint16_t>(of[0] | of[1] << 4 | of[2] << 8 | of[3] << 12);
}

/// E2M1 to nearest, ties to the even code, at most 6.
__device__ __forceinline__ uint32_t e2m1_code(float x) {
  const float size = fabsf(x);
  const int code = (size > 0.25F) + (size >= 0.75F) + (size > 1.25F) + (size >= 1.75F) +
                   (size > 2.5F) + (size >= 3.5F) + (size > 5.0F);
  return static_cast<uint32_t>(code) | (signbit(x) ? 8U : 0U);
}

__device__ __forceinline__ void store_nvfp4(uint8_t* codes, uint8_t* scales, const HeadPart& head,
                                            int dims) {
#pragma unroll
  for (int j = 0; j < kHeadQuads; ++j) {
    float largest = 0.0F;
    bool sound = true;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      largest = fmaxf(largest, fabsf(head.x[j][e]));
      sound = sound && isfinite(head.x[j][e]);
    }
    largest = quad_max(largest);
    const unsigned quad = 15U << static_cast<int>(threadIdx.x) % 32 / 4 * 4;
    sound = (__ballot_sync(kAllLanes, sound) & quad) == quad;
    const uint32_t code =
        sound ? __nv_cvt_float_to_fp8(__fdiv_rn(largest, 6.0F), __NV_SATFINITE, __NV_E4M3) : 0x7FU;
    const float scale = f16_pair(e4m3_to_f16(code)).x;
    uint32_t of[4];
#pragma unroll
    for (int e = 0; e < 4; ++e)
      of[e] = sound && scale > 0.0F ? e2m1_code(__fdiv_rn(head.x[j][e], scale)) : 0U;
    const int d = HeadPart::element(j);
    store_codes(codes, d, dims, of);
    if (d % 16 == 0 && d < dims) scales[d / 16] = static_cast<uint8_t>(code);
  }
}

/// The code of the nearest centroid. Each boundary is a constant: an array of the host does not
/// exist on a card.
template <int kIndex>
struct CentroidBoundary {
  static constexpr float value = kv_centroid_boundary(kIndex);
};
template <int... kBoundaries>
__device__ __forceinline__ uint32_t centroid_code(float x,
                                                  std::integer_sequence<int, kBoundaries...>) {
  return (0U + ... + (x > CentroidBoundary<kBoundaries>::value ? 1U : 0U));
}

__device__ __forceinline__ HeadPart squares_of(const HeadPart& head) {
  HeadPart out = head;
  for_numbers(out, [](float& x, int) { x = __fmul_rn(x, x); });
  return out;
}
__device__ __forceinline__ void store_turboquant_key(uint8_t* codes, uint8_t* scales, HeadPart head,
                                                     int head_dim, int dims) {
  const float norm = __fsqrt_rn(head_sum(squares_of(head)));
  hadamard(head, head_dim);
  const bool sound = norm > 0.0F && isfinite(norm);
#pragma unroll
  for (int j = 0; j < kHeadQuads; ++j) {
    uint32_t of[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float x = sound ? __fdiv_rn(head.x[j][e], norm) : 0.0F;
      of[e] = centroid_code(x, std::make_integer_sequence<int, 15>());
    }
    uint32_t pairs[2];
    centroids_to_bf16(of[0] | of[1] << 4 | of[2] << 8 | of[3] << 12, pairs[0], pairs[1]);
    const int d = HeadPart::element(j);
    const bool within = d < head_dim;
    head.x[j][0] = within ? low_bf16(pairs[0]) : 0.0F;
    head.x[j][1] = within ? high_bf16(pairs[0]) : 0.0F;
    head.x[j][2] = within ? low_bf16(pairs[1]) : 0.0F;
    head.x[j][3] = within ? high_bf16(pairs[1]) : 0.0F;
    store_codes(codes, d, dims, of);
  }
  store_f16(scales, __fdiv_rn(norm, __fsqrt_rn(head_sum(squares_of(head)))));
}
__device__ __forceinline__ void store_uniform_value(uint8_t* codes, uint8_t* scales, HeadPart head,
                                                    int head_dim, int dims) {
  float most = -INFINITY;
  float least = INFINITY;
  bool sound = true;
  for_numbers(head, [&](float& x, int d) {
    if (d >= head_dim) return;
    most = fmaxf(most, x);
    least = fminf(least, x);
    sound = sound && isfinite(x);
  });
  most = warp_max(most);
  least = -warp_max(-least);
  sound = __all_sync(kAllLanes, sound) != 0;
  const float wanted = sound ? fminf(__fdiv_rn(__fsub_rn(most, least), 15.0F), 65504.0F) : NAN;
  const float step = store_f16(scales, wanted);
  const float base = store_f16(scales + 2, sound ? least : 0.0F);
#pragma unroll
  for (int j = 0; j < kHeadQuads; ++j) {
    uint32_t of[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float at = __fadd_rn(__fdiv_rn(__fsub_rn(head.x[j][e], base), step), 0.5F);
      of[e] =
          sound && step != 0.0F ? static_cast<uint32_t>(fminf(fmaxf(floorf(at), 0.0F), 15.0F)) : 0U;
    }
    store_codes(codes, HeadPart::element(j), dims, of);
  }
}

/// Divides a value by the scale of its pages; by 1 it keeps its bits.
__device__ __forceinline__ HeadPart by_scale(HeadPart head, float scale) {
  for_numbers(head, [&](float& x, int) { x = __fdiv_rn(x, scale); });
  return head;
}

/// Stores a key or value of head_dim numbers; `dims` of the codes, a multiple of 4, may be more:
/// those beyond head_dim mean nothing, but for plain formats and NVFP4, where they are zero.
template <KvFormat kFormat, KvSide kSide>
__device__ __forceinline__ void store_line(uint8_t* codes, uint8_t* scales, HeadPart head,
                                           int head_dim, int dims) {
  if constexpr (kFormat == KvFormat::nvfp4) {
    store_nvfp4(codes, scales, head, dims);
  } else if constexpr (kFormat == KvFormat::turboquant_4bit_nc) {
    if constexpr (kSide == KvSide::keys)
      store_turboquant_key(codes, scales, head, head_dim, dims);
    else
      store_uniform_value(codes, scales, head, head_dim, dims);
  } else {
    for_numbers(head, [&](float& x, int d) {
      if (d < dims) KvElements<kFormat>::store(codes, d, x);
    });
  }
}

}  // namespace nibble::cuda
