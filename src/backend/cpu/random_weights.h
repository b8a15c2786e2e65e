// For tests and benchmarks: random numbers and weights in every format a checkpoint may hold.
#pragma once

#include <bit>
#include <cstdint>
#include <random>
#include <vector>

#include "model/weights/weights.h"
#include "tensor/float_formats.h"

namespace nibble::cpu {

class RandomWeights {
 public:
  explicit RandomWeights(uint32_t seed) : engine_(seed) {}

  float uniform(float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(engine_);
  }
  std::vector<float> values(int64_t count, float low = -1.0F, float high = 1.0F) {
    std::vector<float> out(static_cast<size_t>(count));
    for (float& x : out) x = uniform(low, high);
    return out;
  }

  LinearWeight linear(int64_t rows, int64_t cols, WeightFormat format, DType plain = DType::bf16) {
    LinearWeight weight{
        .module = "test", .rows = rows, .cols = cols, .scheme = {.weights = format}};
    switch (format) {
      case WeightFormat::plain:
        weight.values = plain_values(rows, cols, plain);
        break;
      case WeightFormat::nvfp4:
        weight.values = bytes(DType::u8, {rows, cols / 2}, 0xFF);
        weight.scales = bytes(DType::f8_e4m3, {rows, cols / kNvfp4Group}, 0x77);
        weight.global_scale = {.value = 37.5F, .direction = GlobalScale::Direction::divide};
        break;
      case WeightFormat::fp8_tensor:
        weight.values = e4m3(rows, cols);
        weight.scales = scales({1});
        break;
      case WeightFormat::fp8_channel:
        weight.values = e4m3(rows, cols);
        weight.scales = scales({rows});
        break;
      case WeightFormat::fp8_block:
        weight.values = e4m3(rows, cols);
        weight.scales = scales({(rows + 127) / 128, (cols + 127) / 128});
        break;
    }
    return weight;
  }

 private:
  /// Random bytes under a mask; 0x77 keeps E4M3 scales positive and below 448.
  Tensor bytes(DType dtype, const Shape& shape, uint8_t mask) {
    Tensor tensor(dtype, shape);
    for (std::byte& b : tensor.span()) b = static_cast<std::byte>(engine_() & mask);
    return tensor;
  }
  Tensor e4m3(int64_t rows, int64_t cols) {
    Tensor tensor = bytes(DType::f8_e4m3, {rows, cols}, 0xFF);
    for (std::byte& b : tensor.span())
      if ((b & std::byte{0x7F}) == std::byte{0x7F}) b = std::byte{0};
    return tensor;
  }
  Tensor scales(const Shape& shape) {
    Tensor tensor(DType::f32, shape);
    for (int64_t i = 0; i < shape.count(); ++i) tensor.as<float>()[i] = uniform(0.01F, 0.1F);
    return tensor;
  }
  Tensor plain_values(int64_t rows, int64_t cols, DType dtype) {
    Tensor tensor(dtype, {rows, cols});
    for (int64_t i = 0; i < rows * cols; ++i) {
      const float x = uniform(-1.0F, 1.0F);
      if (dtype == DType::bf16) tensor.as<uint16_t>()[i] = float_to_bf16(x);
      if (dtype == DType::f16) tensor.as<uint16_t>()[i] = float_to_f16(x);
      if (dtype == DType::f32) tensor.as<float>()[i] = x;
    }
    return tensor;
  }

  std::mt19937 engine_;
};

/// The same bits, not the same value: 0 is not -0, NaN equals itself.
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i])) return false;
  return true;
}

}  // namespace nibble::cpu
