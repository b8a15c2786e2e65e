// Packed column order: how prompt GEMMs want their input. Within each block of 64 columns, column p
// lies at packed_position(p), so that the 16 columns a lane multiplies are adjacent in the weight's
// own row-major layout: one load brings a lane its codes, and they share one NVFP4 scale.
// A matrix instruction takes its columns 2q, 2q+1, 2q+8, 2q+9 from lane q; step j of four, half h.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define NIBBLE_HOST_DEVICE __host__ __device__
#else
#define NIBBLE_HOST_DEVICE
#endif

namespace nibble::cuda {

enum class ColumnOrder : uint8_t { plain, packed };

/// p = 16 q + 8 w + 4 h + 2 j + r  ->  32 w + 16 j + 8 r + 2 q + h.
NIBBLE_HOST_DEVICE constexpr int packed_position(int p) {
  return (p & ~63) | (p << 2 & 32) | (p << 3 & 16) | (p << 3 & 8) | (p >> 3 & 6) | (p >> 2 & 1);
}
/// The column that lies at position m.
NIBBLE_HOST_DEVICE constexpr int packed_column(int m) {
  return (m & ~63) | (m << 3 & 48) | (m >> 2 & 8) | (m << 2 & 4) | (m >> 3 & 2) | (m >> 3 & 1);
}

}  // namespace nibble::cuda
