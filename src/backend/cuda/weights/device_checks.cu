// Checks of numbers that are not finite or not sound, the layout of codes in their words, and
// random weights for benchmarks.
#include <algorithm>

#include "backend/cuda/ops/attention/kv_elements.cuh"
#include "backend/cuda/ptx/device_math.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/weights/code_words.h"
#include "backend/cuda/weights/device_checks.h"

namespace nibble::cuda {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ bool not_finite(float x) {
  return (__float_as_uint(x) & 0x7F800000U) == 0x7F800000U;
}
__device__ __forceinline__ bool not_finite(uint16_t x) { return (x & 0x7F80U) == 0x7F80U; }
__device__ __forceinline__ bool not_finite(uint8_t e4m3) { return (e4m3 & 0x7FU) == 0x7FU; }

constexpr int kPartsMax = 512;  // parts of one launch, whose parameters have 4 KB
struct PartIds {
  int32_t of[kPartsMax];
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    find_not_finite_kernel(const uint8_t* base, int64_t stride, int64_t count,
                           const __grid_constant__ PartIds ids, int32_t* found) {
  wait_for_inputs();
  const T* values = reinterpret_cast<const T*>(base + ids.of[blockIdx.y] * stride);
  bool bad = false;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < count;
       i += gridDim.x * int64_t{kThreads})
    bad |= not_finite(values[i]);
  if (bad) *found = 1;
}

/// Where the scales of a page are, in units of one: layer after layer the keys of all heads, then
/// their values.
struct PageScales {
  int64_t of_keys, of_values;      // of a head
  int64_t key_bytes, value_bytes;  // of a head, numbers included
  int32_t heads;
  template <typename T>
  __device__ __forceinline__ int64_t byte_of(int64_t i) const {
    const int64_t each = heads * (of_keys + of_values);
    const int64_t layer = i / each * heads * (key_bytes + value_bytes);
    int64_t at = i % each;
    if (at < heads * of_keys)
      return layer + (at / of_keys + 1) * key_bytes +
             (at % of_keys - of_keys) * static_cast<int64_t>(sizeof(T));
    at -= heads * of_keys;
    return layer + heads * key_bytes + (at / of_values + 1) * value_bytes +
           (at % of_values - of_values) * static_cast<int64_t>(sizeof(T));
  }
};
__device__ __forceinline__ bool not_finite_f16(uint16_t x) { return (x & 0x7C00U) == 0x7C00U; }

template <typename T>
__global__ void __launch_bounds__(kThreads)
    find_scales_kernel(const uint8_t* base, int64_t stride, int64_t count,
                       const __grid_constant__ PageScales scales,
                       const __grid_constant__ PartIds ids, int32_t* found) {
  wait_for_inputs();
  const uint8_t* page = base + ids.of[blockIdx.y] * stride;
  bool bad = false;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < count;
       i += gridDim.x * int64_t{kThreads}) {
    const T scale = *reinterpret_cast<const T*>(page + scales.byte_of<T>(i));
    if constexpr (sizeof(T) == 2)
      bad |= not_finite_f16(scale);
    else
      bad |= not_finite(scale);
  }
  if (bad) *found = 1;
}

/// 16 bytes a thread at a time; both ends need not be aligned.
__global__ void __launch_bounds__(kThreads)
    find_not_sound_kernel(const uint8_t* values, int64_t bytes, Soundness kind, int32_t* found) {
  const auto bad_byte = [kind](uint32_t x) {
    return kind == Soundness::e4m3 ? (x & 0x7FU) == 0x7FU : x >= 0x7FU;
  };
  bool bad = false;
  const auto bad_word = [&](uint32_t word) {
    if (kind == Soundness::bf16)
      return not_finite(static_cast<uint16_t>(word)) ||
             not_finite(static_cast<uint16_t>(word >> 16));
    return bad_byte(word & 0xFFU) || bad_byte(word >> 8 & 0xFFU) || bad_byte(word >> 16 & 0xFFU) ||
           bad_byte(word >> 24);
  };
  const int64_t stride = gridDim.x * int64_t{kThreads};
  const int64_t thread = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  const bool aligned = reinterpret_cast<uintptr_t>(values) % 16 == 0;
  const int64_t whole = aligned ? bytes / 16 : 0;
  for (int64_t i = thread; i < whole; i += stride) {
    const uint4 v = reinterpret_cast<const uint4*>(values)[i];
    bad |= bad_word(v.x) || bad_word(v.y) || bad_word(v.z) || bad_word(v.w);
  }
  if (kind == Soundness::bf16) {
    for (int64_t i = whole * 8 + thread; i < bytes / 2; i += stride)
      bad |= not_finite(reinterpret_cast<const uint16_t*>(values)[i]);
  } else {
    for (int64_t i = whole * 16 + thread; i < bytes; i += stride) bad |= bad_byte(values[i]);
  }
  if (bad) *found = 1;
}

__global__ void __launch_bounds__(kThreads)
    lay_codes_kernel(uint2* values, int64_t count, Format format) {
  wait_for_inputs();
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < count;
       i += gridDim.x * int64_t{kThreads}) {
    const uint2 v = values[i];
    if (format == Format::nvfp4) {
      values[i] = make_uint2(lay_e2m1(v.x), lay_e2m1(v.y));
    } else {
      const E4m3Words laid = lay_e4m3(v.x, v.y);
      values[i] = make_uint2(laid.of[0], laid.of[1]);
    }
  }
}

__device__ __forceinline__ uint32_t scramble(uint64_t x) {  // splitmix64
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return static_cast<uint32_t>(x >> 32);
}

/// BF16 numbers are normal, FP8 codes any finite ones, NVFP4 codes any.
__global__ void fill_values_kernel(uint8_t* values, int64_t bytes, Format format, float deviation,
                                   uint64_t seed) {
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < bytes / 4;
       i += gridDim.x * int64_t{kThreads}) {
    const uint32_t a = scramble(seed + static_cast<uint64_t>(i));
    uint32_t word = a;
    if (format == Format::fp8) {
      word &= 0xBFBFBFBFU;  // magnitudes below 2
    } else if (format == Format::bf16) {
      const uint32_t b = scramble(~(seed + static_cast<uint64_t>(i)));
      const float radius = deviation * sqrtf(-2.0F * logf((a + 1.0F) * 0x1p-32F + 1e-12F));
      word = to_bf16_pair(radius * cospif(b * 0x1p-31F), radius * sinpif(b * 0x1p-31F));
    }
    reinterpret_cast<uint32_t*>(values)[i] = word;
  }
}

/// Fills E4M3 scales between 2^-1 and 2.
__global__ void fill_scales_kernel(uint8_t* scales, int64_t count, uint64_t seed) {
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < count;
       i += gridDim.x * int64_t{kThreads})
    scales[i] = static_cast<uint8_t>(0x30U + scramble(seed + static_cast<uint64_t>(i)) % 16U);
}

__global__ void fill_constant_kernel(float* values, int64_t count, float value) {
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < count;
       i += gridDim.x * int64_t{kThreads})
    values[i] = value;
}

/// Looks at `count` numbers of each part; launch_some(grid, ids) launches the kernel over some.
template <typename Launch>
void find_in_parts(const PoolParts& parts, int64_t count, const Launch& launch_some) {
  if (count == 0) return;
  for (size_t begin = 0; begin < parts.ids.size(); begin += kPartsMax) {
    const auto some =
        parts.ids.subspan(begin, std::min<size_t>(kPartsMax, parts.ids.size() - begin));
    PartIds ids;
    std::copy(some.begin(), some.end(), ids.of);
    const int64_t blocks = (count + kThreads - 1) / kThreads;
    const int64_t most = 1056 / static_cast<int64_t>(some.size()) + 1;
    launch_some(dim3(static_cast<unsigned>(min(blocks, most)), static_cast<unsigned>(some.size())),
                ids);
  }
}

template <typename T>
void find_scales(const PoolParts& parts, int32_t* found, const Launcher& launcher) {
  const auto size = static_cast<int64_t>(sizeof(T));
  const auto bytes = [&](KvSide side) {
    return kPage * kv_line_bytes(parts.format, side, parts.head_dim);
  };
  const auto units = [&](KvSide side) {
    return kPage * kv_scale_bytes(parts.format, side, parts.head_dim) / size;
  };
  const PageScales scales = {.of_keys = units(KvSide::keys),
                             .of_values = units(KvSide::values),
                             .key_bytes = bytes(KvSide::keys),
                             .value_bytes = bytes(KvSide::values),
                             .heads = parts.kv_heads};
  const int64_t layers = parts.bytes / (parts.kv_heads * (scales.key_bytes + scales.value_bytes));
  const int64_t count = layers * parts.kv_heads * (scales.of_keys + scales.of_values);
  find_in_parts(parts, count, [&](dim3 grid, const PartIds& ids) {
    launch(find_scales_kernel<T>, launcher, grid, kThreads, 0, parts.base, parts.stride, count,
           scales, ids, found);
  });
}

}  // namespace

void find_not_finite(const PoolParts& parts, int32_t* found, const Launcher& launcher) {
  with_any_kv_format(parts.format, [&]<KvFormat kFormat>() {
    if constexpr (kFormat == KvFormat::nvfp4) {
      find_scales<uint8_t>(parts, found, launcher);
    } else if constexpr (kFormat == KvFormat::turboquant_4bit_nc) {
      find_scales<uint16_t>(parts, found, launcher);
    } else {
      using Code = typename KvElements<kFormat>::Code;
      const int64_t count = parts.bytes / int64_t{sizeof(Code)};
      find_in_parts(parts, count, [&](dim3 grid, const PartIds& ids) {
        launch(find_not_finite_kernel<Code>, launcher, grid, kThreads, 0, parts.base, parts.stride,
               count, ids, found);
      });
    }
  });
}

void find_not_sound(const uint8_t* values, int64_t bytes, Soundness kind, int32_t* found,
                    const Launcher& launcher) {
  const auto blocks = static_cast<unsigned>(min(bytes / 16 / kThreads + 1, int64_t{1056}));
  launch(find_not_sound_kernel, launcher, blocks, kThreads, 0, values, bytes, kind, found);
}

void lay_codes(uint8_t* values, int64_t bytes, Format format, const Launcher& launcher) {
  const auto blocks = static_cast<unsigned>(min(bytes / 8 / kThreads + 1, int64_t{2112}));
  launch(lay_codes_kernel, launcher, blocks, kThreads, 0, reinterpret_cast<uint2*>(values),
         bytes / 8, format);
}

void fill_random(const DeviceLinear& weight, int64_t matrices, float deviation, uint32_t seed,
                 const Launcher& launcher) {
  const int64_t rows = matrices * weight.rows;
  constexpr unsigned kBlocks = 1056;
  launch(fill_values_kernel, launcher, kBlocks, kThreads, 0, const_cast<uint8_t*>(weight.values),
         rows * value_bytes(weight.format, weight.cols), weight.format, deviation,
         uint64_t{seed} << 34);
  if (weight.format == Format::fp8)
    lay_codes(const_cast<uint8_t*>(weight.values), rows * weight.cols, Format::fp8, launcher);
  if (weight.format == Format::nvfp4)
    launch(fill_scales_kernel, launcher, kBlocks, kThreads, 0, const_cast<uint8_t*>(weight.scales),
           rows * (weight.cols / 16), (uint64_t{seed} << 34) + (uint64_t{1} << 33));
  // Random E2M1 codes under such scales deviate by about 3.0, E4M3 codes as masked by about 0.8.
  const float spread = weight.format == Format::nvfp4 ? 3.0F : 0.8F;
  if (weight.factor_stride > 0)
    launch(fill_constant_kernel, launcher, kBlocks, kThreads, 0, const_cast<float*>(weight.factors),
           matrices * weight.factor_stride, deviation / spread);
}

}  // namespace nibble::cuda
