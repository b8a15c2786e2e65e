// For tests of rounding: weights of several families, inputs with and without correlation, and a
// search written down as the definition says it.
#pragma once

#include <bit>
#include <cmath>
#include <functional>
#include <random>
#include <string_view>
#include <vector>

#include "quantize/rounding/rounding.h"
#include "tensor/nvfp4.h"

namespace nibble::test {

using Generator = std::mt19937_64;

struct WeightFamily {
  std::string_view name;
  std::function<float(Generator&)> weight;
};

inline float gaussian(Generator& random) {
  return std::normal_distribution<float>(0, 0.03F)(random);
}

inline const std::vector<WeightFamily>& weight_families() {
  static const std::vector<WeightFamily> kFamilies = {
      {"gaussian", gaussian},
      {"heavy tail", [](Generator& g) { return std::student_t_distribution<float>(3)(g); }},
      {"sparse", [](Generator& g) { return g() % 8 == 0 ? gaussian(g) : 0.0F; }},
      {"ties", [](Generator& g) { return static_cast<float>(g() % 49) * 0.125F; }},
      {"wide", [](Generator& g) { return std::ldexp(gaussian(g), -static_cast<int>(g() % 24)); }},
      {"tiny", [](Generator& g) { return gaussian(g) * 0x1p-126F; }},
      {"huge", [](Generator& g) { return gaussian(g) * 0x1p125F; }},
      {"zero", [](Generator& g) { return g() % 2 == 0 ? 0.0F : -0.0F; }},
  };
  return kFamilies;
}

/// BF16 values.
inline std::vector<float> draw_weights(const WeightFamily& family, size_t count, uint64_t seed) {
  Generator random(seed);
  std::vector<float> weights(count);
  for (float& w : weights) w = round_to_bf16(family.weight(random));
  return weights;
}

inline TensorView matrix_view(const std::vector<float>& weights, int64_t cols) {
  return {reinterpret_cast<const std::byte*>(weights.data()), DType::f32,
          Shape{static_cast<int64_t>(weights.size()) / cols, cols}};
}

inline int exponent_of(const std::vector<float>& weights) {
  return global_exponent(largest_magnitude(reinterpret_cast<const std::byte*>(weights.data()),
                                           DType::f32, static_cast<int64_t>(weights.size())));
}

/// Inputs [tokens, cols] with a few common directions and columns of very different size; columns
/// with index 5 modulo 37 are always zero.
inline std::vector<float> draw_inputs(int64_t tokens, int64_t cols, uint64_t seed) {
  Generator random(seed);
  std::normal_distribution<float> normal(0, 1);
  constexpr int64_t kDirections = 6;
  std::vector<float> mix(static_cast<size_t>(kDirections * cols)), size(static_cast<size_t>(cols));
  for (float& m : mix) m = normal(random);
  for (float& s : size) s = std::exp(1.5F * normal(random));
  for (size_t i = 5; i < size.size(); i += 37) size[i] = 0.0F;
  std::vector<float> x;
  for (int64_t t = 0; t < tokens; ++t) {
    float common[kDirections];
    for (float& c : common) c = normal(random);
    for (int64_t i = 0; i < cols; ++i) {
      float value = 0.7F * normal(random);
      for (int64_t d = 0; d < kDirections; ++d)
        value += 0.4F * common[d] * mix[static_cast<size_t>(d * cols + i)];
      x.push_back(value * size[static_cast<size_t>(i)]);
    }
  }
  return x;
}

inline InputStatistics gather(const std::vector<float>& x, int64_t cols, SecondMoment kind) {
  ThreadPool one(1);
  InputStatistics statistics(cols, kind);
  statistics.add(x.data(), static_cast<int64_t>(x.size()) / cols, cols, one);
  return statistics;
}

inline std::vector<float> decoded(const RoundedMatrix& rounded, int exponent) {
  std::vector<float> out(rounded.codes.size() * 2);
  decode_nvfp4_row(rounded.codes.data(), rounded.scales.data(),
                   power_of_two_global(exponent, GlobalScale::Direction::multiply),
                   static_cast<int64_t>(out.size()), out.data());
  return out;
}

/// Squared error of the outputs W x over all tokens and rows, in double: what calibration is for.
inline double output_error(const std::vector<float>& weights, const std::vector<float>& rounded,
                           const std::vector<float>& x, int64_t cols) {
  double total = 0;
  const auto k = static_cast<size_t>(cols);
  for (size_t n = 0; n < weights.size(); n += k)
    for (size_t t = 0; t < x.size(); t += k) {
      double y = 0;
      for (size_t i = 0; i < k; ++i)
        y += (static_cast<double>(weights[n + i]) - static_cast<double>(rounded[n + i])) *
             static_cast<double>(x[t + i]);
      total += y * y;
    }
  return total;
}

/// Error of one weight under a scale code, as nvfp4_round.h defines it, with the weight's sign.
inline float weight_error(float u, int code) {
  const float scale = e4m3_to_float(static_cast<uint8_t>(code));
  const float magnitude = std::bit_cast<float>(std::bit_cast<uint32_t>(std::fabs(u)) & 0xFFFFFFF0U);
  const float error = magnitude - e2m1_to_float(float_to_e2m1(magnitude / scale)) * scale;
  return std::signbit(u) ? -error : error;
}

/// The scale of a block, given its weights over 2^exponent and its index in the row.
using ScaleChoice = std::function<uint8_t(const float* u, size_t block)>;

/// Scales by `choose`, codes by the scalar codec, zero without a sign.
inline RoundedMatrix round_obviously(const std::vector<float>& weights, int64_t cols, int exponent,
                                     const ScaleChoice& choose) {
  RoundedMatrix out{.codes = std::vector<uint8_t>(weights.size() / 2),
                    .scales = std::vector<uint8_t>(weights.size() / 16),
                    .statistics = {}};
  for (size_t block = 0; block < out.scales.size(); ++block) {
    float u[16];
    bool zero = true;
    for (size_t i = 0; i < 16; ++i) {
      u[i] = std::ldexp(weights[block * 16 + i], -exponent);
      zero = zero && u[i] == 0.0F;
    }
    out.scales[block] =
        zero ? kZeroBlockScale : choose(u, block % (static_cast<size_t>(cols) / 16));
    uint8_t* codes = &out.codes[block * 8];
    encode_nvfp4_block(u, out.scales[block], GlobalScale{}, codes);
    for (int j = 0; j < 8; ++j) {
      if ((codes[j] & 0x0FU) == 0x08U) codes[j] &= 0xF0U;
      if ((codes[j] & 0xF0U) == 0x80U) codes[j] &= 0x0FU;
    }
  }
  return out;
}

}  // namespace nibble::test
