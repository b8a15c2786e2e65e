// For tests of products: weights in every format and shape, inputs, and one product.
#pragma once

#include <vector>

#include "backend/cpu/linear.h"
#include "backend/cpu/random_weights.h"

namespace nibble::cpu {

struct Case {
  WeightFormat format;
  DType plain;
  int64_t rows, cols;
};

inline std::vector<Case> cases() {
  std::vector<Case> all;
  const int64_t shapes[][2] = {{1, 16},    {16, 16},   {40, 48},  {129, 144},
                               {200, 288}, {24, 2048}, {16, 4096}};
  for (const auto& [rows, cols] : shapes) {
    all.push_back({WeightFormat::plain, DType::bf16, rows, cols});
    all.push_back({WeightFormat::plain, DType::bf16, rows, cols - 3});
    all.push_back({WeightFormat::plain, DType::f32, rows, cols - 7});
    all.push_back({WeightFormat::plain, DType::f16, rows, cols - 1});
    all.push_back({WeightFormat::nvfp4, DType::u8, rows, cols});
    all.push_back({WeightFormat::fp8_tensor, DType::u8, rows, cols - 5});
    all.push_back({WeightFormat::fp8_channel, DType::u8, rows, cols});
    all.push_back({WeightFormat::fp8_block, DType::u8, rows, cols - 2});
  }
  return all;
}

/// Inputs of one weight, padded as the kernels want them.
struct Inputs {
  std::vector<float> x;
  int64_t stride;
};

inline Inputs random_inputs(RandomWeights& random, int64_t rows, int64_t cols) {
  Inputs inputs{.x = {}, .stride = padded_columns(cols) + 16};
  inputs.x.assign(static_cast<size_t>(rows * inputs.stride), 0.0F);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t k = 0; k < cols; ++k)
      inputs.x[static_cast<size_t>(r * inputs.stride + k)] = random.uniform(-1.0F, 1.0F);
  return inputs;
}

struct Way {
  const KernelTable& kernels;
  int threads = 1;
  Activations activations = Activations::f32;
};

/// `picked`: the rows of the inputs, whose number is `rows` then; nullptr: the first ones.
inline std::vector<float> multiply(const Way& way, const PackedLinear& weight, const Inputs& inputs,
                                   int64_t rows, const int32_t* picked = nullptr) {
  ThreadPool pool(way.threads);
  LinearRunner runner(way.kernels, pool, way.activations);
  std::vector<float> y(static_cast<size_t>(rows * weight.rows()), -7.0F);
  const LinearCall call = {.weight = &weight,
                           .x = inputs.x.data(),
                           .x_stride = inputs.stride,
                           .rows = rows,
                           .y = y.data(),
                           .y_stride = weight.rows(),
                           .picked = picked,
                           .x_rows = static_cast<int64_t>(inputs.x.size()) / inputs.stride};
  runner.run({&call, 1});
  return y;
}

}  // namespace nibble::cpu
