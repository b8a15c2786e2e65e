// Random matrices of every format for the checks and timings of products.
#pragma once

#include "backend/cuda/checks/check_parts.h"
#include "backend/cuda/weights/device_weights.h"

namespace nibble::checks {

/// `codes`: which bits of an FP8 code may be set.
inline cuda::DeviceLinear make_weight(cuda::Format format, cuda::FactorLayout layout, int rows,
                                      int cols, uint32_t seed, uint32_t codes = 0xFF) {
  using cuda::FactorLayout;
  using cuda::Format;
  cuda::DeviceLinear w{.format = format, .layout = layout, .rows = rows, .cols = cols};
  const int64_t bytes = rows * cuda::value_bytes(format, cols);
  auto* values = device_array<uint8_t>(bytes);
  if (format == Format::bf16) {
    fill_normal(reinterpret_cast<uint16_t*>(values), int64_t{rows} * cols, seed, 0.02F);
  } else {
    const bool fp8 = format == Format::fp8;
    fill_kernel<<<1024, 256>>>(
        [=] __device__(int64_t i) {
          uint32_t b = hash_bits(seed, i) & codes;
          if (fp8 && (b & 0x7F) == 0x7F) b ^= 1;
          values[i] = static_cast<uint8_t>(b);
        },
        bytes);
  }
  w.values = values;
  if (format == Format::nvfp4) {
    auto* scales = device_array<uint8_t>(int64_t{rows} * cols / 16);
    fill_kernel<<<1024, 256>>>(
        [=] __device__(int64_t i) {
          const uint32_t b = hash_bits(seed + 1, i) & 0x7F;
          scales[i] = static_cast<uint8_t>(b == 0x7F ? 0x7E : b);
        },
        int64_t{rows} * cols / 16);
    w.scales = scales;
  }
  const int64_t factors = layout == FactorLayout::none     ? 0
                          : layout == FactorLayout::scalar ? 1
                          : layout == FactorLayout::row
                              ? rows
                              : int64_t{(rows + 127) / 128} * (cols / 128);
  if (factors > 0) {
    auto* f = device_array<float>(factors);
    fill_kernel<<<64, 256>>>(
        [=] __device__(int64_t i) { f[i] = 0.01F * (1.5F + hash_normal(seed + 2, i) * 0.4F); },
        factors);
    w.factors = f;
  }
  return w;
}
inline void free_weight(const cuda::DeviceLinear& w) {
  cudaFree(const_cast<uint8_t*>(w.values));
  cudaFree(const_cast<uint8_t*>(w.scales));
  cudaFree(const_cast<float*>(w.factors));
}

}  // namespace nibble::checks
