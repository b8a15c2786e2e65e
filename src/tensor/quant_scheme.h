// QuantScheme: how a weight matrix [N, K] is stored, and what precision its file declares for the
// activations that meet it. Formats: docs/formats.md.
#pragma once

#include <cstdint>

namespace nibble {

enum class WeightFormat : uint8_t {
  plain,        // BF16, F16 or F32 values
  nvfp4,        // E2M1 codes, one E4M3 scale per 16 columns, one FP32 global scale
  fp8_tensor,   // E4M3 codes, one scale
  fp8_channel,  // E4M3 codes, one scale per row
  fp8_block,    // E4M3 codes, one scale per 128 x 128 tile
};

enum class ActivationFormat : uint8_t {
  high,        // BF16 or better
  nvfp4,       // E2M1, E4M3 scale per 16 columns under the file's global input scale
  fp8_token,   // E4M3, one scale per row, computed at run time
  fp8_tensor,  // E4M3, the file's one static scale
  fp8_group,   // E4M3, one scale per row and 128 columns, computed at run time
};

/// The scale of 16 inputs in NVFP4. amax: amax / 6, as compressed-tensors has it. four_over_six: of
/// that and amax / 4, the scale of 1.5 amax, the one with the smaller sum of squared errors (arXiv
/// 2512.02010), the first if they are equal. Both give codes that every kernel multiplies.
enum class InputScales : uint8_t { amax, four_over_six };

struct QuantScheme {
  WeightFormat weights = WeightFormat::plain;
  ActivationFormat activations = ActivationFormat::high;
  bool operator==(const QuantScheme&) const = default;
};

inline constexpr int64_t kNvfp4Group = 16;  // columns under one E4M3 scale
inline constexpr int64_t kFp8Block = 128;   // edge of an FP8 block tile

/// FP32 second-level scale as its file states it. compressed-tensors divides by 2688/amax,
/// ModelOpt multiplies by amax/2688; keeping the direction keeps decoding byte-exact.
struct GlobalScale {
  enum class Direction : uint8_t { divide, multiply };
  float value = 1.0F;
  Direction direction = Direction::multiply;

  /// The real scale of a block whose E4M3 scale decodes to `block_scale`.
  float apply(float block_scale) const {
    return direction == Direction::divide ? block_scale / value : block_scale * value;
  }
};

}  // namespace nibble
