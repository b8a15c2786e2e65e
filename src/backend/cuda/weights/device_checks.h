// Kernels over weights and caches as bytes: checks of their numbers, the layout of codes, random
// weights for benchmarks. Each reads or writes its bytes once.
#pragma once

#include <span>

#include "backend/cuda/runtime/launcher.h"
#include "backend/cuda/weights/device_weights.h"

namespace nibble::cuda {

/// The parts of a pool that are checked: part i is `bytes` bytes of numbers from base + ids[i] *
/// stride on; of formats of 4 bits a page, whose scales alone can be other than finite.
struct PoolParts {
  const uint8_t* base = nullptr;
  int64_t stride = 0;  // bytes
  int64_t bytes = 0;
  KvFormat format = KvFormat::f32;
  int32_t kv_heads = 0;  // of a page
  int32_t head_dim = 0;  // likewise
  std::span<const int32_t> ids;  // on the host
};
/// Sets *found = 1 if a number of one of the parts is infinite or NaN.
void find_not_finite(const PoolParts& parts, int32_t* found, const Launcher& launcher);
/// The numbers that a file may hold: finite ones, and for NVFP4 block scales that are not negative.
enum class Soundness : uint8_t { bf16, e4m3, nvfp4_scale };
/// Sets *found = 1 if one of the values is not sound. `bytes` is a multiple of 2 for BF16.
void find_not_sound(const uint8_t* values, int64_t bytes, Soundness kind, int32_t* found,
                    const Launcher& launcher);
/// Reorders a file's codes of format fp8 or nvfp4 in place, as code_words.h says. `bytes` is a
/// multiple of 8.
void lay_codes(uint8_t* values, int64_t bytes, Format format, const Launcher& launcher);
/// Fills a matrix with random normal BF16 numbers or random codes, for benchmarks without files.
void fill_random(const DeviceLinear& weight, int64_t matrices, float deviation, uint32_t seed,
                 const Launcher& launcher);

}  // namespace nibble::cuda
