// The formats of KV pages that have 4 bits a number, as kernels read them: kv_elements.cuh has the
// contract, model/kv_four_bits.h the formats. Codes become numbers by byte permutations, four at a
// time. E2M1 numbers times their scales are exact in F16 (6 bits); centroids, and codes of values,
// are exact in BF16, and what a whole line shares multiplies scores and weights of a softmax.
#pragma once

#include <bit>

#include "backend/cuda/ops/attention/kv_plain.cuh"

namespace nibble::cuda {

/// 16-bit words of which `table` has the 8 high (or low) bytes.
struct ByteTable {
  uint32_t low = 0, high = 0;  // of entries 0 .. 3, 4 .. 7
};
constexpr ByteTable centroid_bytes(int shift) {
  ByteTable table;
  for (int i = 0; i < 8; ++i) {
    const uint32_t byte = std::bit_cast<uint32_t>(kKvCentroids[8 + i]) >> shift & 255U;
    (i < 4 ? table.low : table.high) |= byte << 8 * (i % 4);
  }
  return table;
}
__device__ __forceinline__ uint32_t look_up(ByteTable table, uint32_t selectors) {
  return __byte_perm(table.low, table.high, selectors);
}
/// The sign bits of the four numbers of two registers from bit 3 of the codes 0 .. 3 in `codes`.
__device__ __forceinline__ uint32_t signs_of_first(uint32_t codes) {
  return (codes << 12 & 0x8000U) | (codes << 24 & 0x80000000U);
}
__device__ __forceinline__ uint32_t signs_of_second(uint32_t codes) {
  return (codes << 4 & 0x8000U) | (codes << 16 & 0x80000000U);
}

/// Makes F16 pairs of the E2M1 codes in the low 16 bits of `codes`.
__device__ __forceinline__ void e2m1_to_f16(uint32_t codes, uint32_t& first, uint32_t& second) {
  constexpr ByteTable kHigh = {0x3E3C3800U, 0x46444240U};  // 0, 0.5, 1, 1.5, 2, 3, 4, 6
  const uint32_t bytes = look_up(kHigh, codes & 0x7777U);
  first = __byte_perm(bytes, 0, 0x1404) | signs_of_first(codes);
  second = __byte_perm(bytes, 0, 0x3424) | signs_of_second(codes);
}
/// Makes BF16 pairs of the centroids of the codes in the low 16 bits of `codes`. Code 8 + i is
/// positive, code 7 - i its negative.
__device__ __forceinline__ void centroids_to_bf16(uint32_t codes, uint32_t& first,
                                                  uint32_t& second) {
  constexpr ByteTable kLow = centroid_bytes(16);
  constexpr ByteTable kHigh = centroid_bytes(24);
  const uint32_t index = (codes & 0x7777U) ^ 0x7777U ^ (codes >> 3 & 0x1111U) * 7U;
  const uint32_t low = look_up(kLow, index);
  const uint32_t high = look_up(kHigh, index);
  first = __byte_perm(low, high, 0x5140) | signs_of_first(~codes);
  second = __byte_perm(low, high, 0x7362) | signs_of_second(~codes);
}
/// Makes a BF16 pair of the codes in bits 0 .. 3 and 16 .. 19: 128 + code has the code in its last
/// bits.
__device__ __forceinline__ uint32_t steps_to_bf16(uint32_t codes) {
  const uint32_t raised = (codes & 0x000F000FU) | 0x43004300U;
  const auto wide = *reinterpret_cast<const __nv_bfloat162*>(&raised);
  const __nv_bfloat162 steps = __hsub2(wide, __float2bfloat162_rn(128.0F));
  return *reinterpret_cast<const uint32_t*>(&steps);
}
__device__ __forceinline__ uint32_t multiply_f16(uint32_t x, uint32_t y) {
  const __half2 product =
      __hmul2(*reinterpret_cast<const __half2*>(&x), *reinterpret_cast<const __half2*>(&y));
  return *reinterpret_cast<const uint32_t*>(&product);
}
/// The E4M3 number in the low byte, in F16.
__device__ __forceinline__ uint32_t e4m3_to_f16(uint32_t code) {
  return __nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(code), __NV_E4M3).x;
}
__device__ __forceinline__ float f16_at(const uint8_t* from) {
  return __half2float(*reinterpret_cast<const __half*>(from));
}
__device__ __forceinline__ float2 f16_pair(uint32_t word) {
  return __half22float2(*reinterpret_cast<const __half2*>(&word));
}
__device__ __forceinline__ uint32_t nibble_at(const uint8_t* codes, int64_t i) {
  return codes[i / 2] >> 4 * (i % 2) & 15U;
}

/// The places of numbers, which both formats share: a lane has 32 keys of a chunk of 4 lanes, or 32
/// values of one of 8.
struct FourBitPlaces {
  static constexpr int kChunkTiles = 16;
  static constexpr bool kWidens = true;
  static __device__ __forceinline__ int key_place(int d) {
    return 4 * (d / 128 * 8 + d % 32 / 4) + d % 128 / 32;
  }
  static constexpr int value_chunk(int i) { return i / 16; }
  static constexpr int value_word(int i) { return i % 16 / 4; }
  static __device__ __forceinline__ int out_dims(int i, int g) {
    return i / 16 * 256 + g * 32 + i % 16 * 2;
  }
  /// The four codes of a lane's keys in product s.
  static __device__ __forceinline__ uint32_t key_codes(const uint4* chunks, int s) {
    return word_at(chunks[s / 8], s % 8 / 2) >> 16 * (s % 2);
  }
};

/// Keys are centroids, whose factor multiplies a score; values are codes, whose step multiplies a
/// weight, and whose least number is added for each weight.
template <>
struct KvElements<KvFormat::turboquant_4bit_nc> : FourBitPlaces {
  static constexpr KvScales kScales = KvScales::lines;
  static constexpr Operands kOperands = Operands::bf16;
  static constexpr int kWeightParts = 2;

  template <KvSide kSide>
  static __device__ __forceinline__ float load(const uint8_t* codes, const uint8_t* scales,
                                               int64_t i) {
    const uint32_t code = nibble_at(codes, i);
    if constexpr (kSide == KvSide::values)
      return fmaf(f16_at(scales), static_cast<float>(code), f16_at(scales + 2));
    uint32_t centroid, other;
    centroids_to_bf16(code, centroid, other);
    return low_bf16(centroid) * f16_at(scales);
  }
  static __device__ __forceinline__ uint32_t pair(float low, float high) {
    return to_bf16_pair(low, high);
  }
  static __device__ __forceinline__ uint32_t rest(float low, float high, uint32_t pair) {
    return to_bf16_pair(low - low_bf16(pair), high - high_bf16(pair));
  }
  static __device__ __forceinline__ void key_operand(const uint4* chunks, int s, uint32_t (&b)[2]) {
    centroids_to_bf16(key_codes(chunks, s), b[0], b[1]);
  }
  static __device__ __forceinline__ void value_operand(const uint32_t (&t)[4], int i,
                                                       uint32_t (&a)[4]) {
    const unsigned pick = 0x4400U + 0x1111U * (i % 4);
    const uint32_t low = __byte_perm(t[0], t[1], pick);
    const uint32_t high = __byte_perm(t[2], t[3], pick);
    a[0] = steps_to_bf16(low);
    a[1] = steps_to_bf16(low >> 4);
    a[2] = steps_to_bf16(high);
    a[3] = steps_to_bf16(high >> 4);
  }
  /// Makes BF16 pairs of four codes for the operands of prompts; `scales` has what the line shares.
  template <KvSide kSide>
  static __device__ __forceinline__ void widen(uint32_t codes, uint32_t scales, int,
                                               uint32_t& first, uint32_t& second) {
    const float2 shared = f16_pair(scales);
    if constexpr (kSide == KvSide::keys) {
      centroids_to_bf16(codes, first, second);
      first = to_bf16_pair(low_bf16(first) * shared.x, high_bf16(first) * shared.x);
      second = to_bf16_pair(low_bf16(second) * shared.x, high_bf16(second) * shared.x);
    } else {
      const auto number = [&](int i) {
        return fmaf(shared.x, static_cast<float>(codes >> 4 * i & 15U), shared.y);
      };
      first = to_bf16_pair(number(0), number(1));
      second = to_bf16_pair(number(2), number(3));
    }
  }
};

/// E2M1 numbers are multiplied by their scales as they become operands.
template <>
struct KvElements<KvFormat::nvfp4> : FourBitPlaces {
  static constexpr KvScales kScales = KvScales::groups;
  static constexpr Operands kOperands = Operands::f16;
  static constexpr int kWeightParts = 1;

  template <KvSide>
  static __device__ __forceinline__ float load(const uint8_t* codes, const uint8_t* scales,
                                               int64_t i) {
    uint32_t number, other;
    e2m1_to_f16(nibble_at(codes, i), number, other);
    return f16_pair(number).x * f16_pair(e4m3_to_f16(scales[i / 16])).x;
  }
  static __device__ __forceinline__ uint32_t pair(float low, float high) {
    return to_f16_pair(low, high);
  }
  static __device__ __forceinline__ uint32_t rest(float low, float high, uint32_t pair) {
    const float2 taken = f16_pair(pair);
    return to_f16_pair(low - taken.x, high - taken.y);
  }
  /// `scales` has those of a lane's chunks: 16 numbers under the low byte, then 16 under the next.
  static __device__ __forceinline__ void key_operand(const uint4* chunks, const uint32_t* scales,
                                                     int s, uint32_t (&b)[2]) {
    e2m1_to_f16(key_codes(chunks, s), b[0], b[1]);
    const uint32_t scale = e4m3_to_f16(scales[s / 8] >> s % 8 / 4 * 8) * 0x10001U;
    b[0] = multiply_f16(b[0], scale);
    b[1] = multiply_f16(b[1], scale);
  }
  static __device__ __forceinline__ void value_operand(const uint32_t (&t)[4],
                                                       const uint32_t (&scales)[4], int i,
                                                       uint32_t (&a)[4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const unsigned pick = 0x40U + 0x11U * (i % 4);
      uint32_t first, second;  // of a token each
      e2m1_to_f16(__byte_perm(t[2 * half], t[2 * half + 1], pick) & 0xFFFFU, first, second);
      const int shift = i % 16 / 8 * 8;
      const uint32_t scale =
          e4m3_to_f16(scales[2 * half] >> shift) | e4m3_to_f16(scales[2 * half + 1] >> shift) << 16;
      a[2 * half] = multiply_f16(__byte_perm(first, second, 0x5410), scale);
      a[2 * half + 1] = multiply_f16(__byte_perm(first, second, 0x7632), scale);
    }
  }
  /// Makes BF16 pairs of four codes for the operands of prompts: codes 4 `four` .. + 3 of 32 whose
  /// two scales are in `scales`.
  template <KvSide>
  static __device__ __forceinline__ void widen(uint32_t codes, uint32_t scales, int four,
                                               uint32_t& first, uint32_t& second) {
    const uint32_t scale = e4m3_to_f16(scales >> four / 4 * 8) * 0x10001U;
    e2m1_to_f16(codes, first, second);
    const float2 low = f16_pair(multiply_f16(first, scale));
    const float2 high = f16_pair(multiply_f16(second, scale));
    first = to_bf16_pair(low.x, low.y);
    second = to_bf16_pair(high.x, high.y);
  }
};

}  // namespace nibble::cuda
