// Linears made up for the check of GPTQ on the card, and its timings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/cuda/runtime/device_context.h"
#include "model/devices/gptq_device.h"
#include "model/taps.h"

namespace nibble::bench {

/// sound: columns with index 5 modulo 37 are always zero. wants_damping: ten times the damping
/// makes it positive definite. broken: none does.
enum class MomentShape : uint8_t { sound, wants_damping, broken };

struct GptqCase {
  InputStatistics statistics;
  std::vector<int64_t> order;
  double unit = 0;
  int64_t rows = 0;
  DType dtype = DType::bf16;
  std::vector<std::byte> weights;  // [rows, K]
  int exponent = 0;
  std::vector<float> fp8_scales;    // [rows]
  std::vector<int32_t> exponents;   // [rows]
  std::vector<float> block_scales;  // [rows, K/16], over 2^exponent

  size_t count() const { return static_cast<size_t>(rows * statistics.cols); }
  TensorView view() const { return {weights.data(), dtype, Shape{rows, statistics.cols}}; }
  /// The CPU factorises once more for FP8, which takes too long for the widest.
  bool has_fp8() const { return statistics.cols < 4096; }
  GptqMoment moment() const;
  std::string name() const;
};

GptqCase gptq_case(int64_t cols, int64_t rows, MomentShape shape, DType dtype = DType::bf16);

/// Prints the time of each step, and of experts of the 35B by the number of lanes.
void time_gptq(cuda::DeviceContext& device);

}  // namespace nibble::bench
