// The formats are those of quantize(): searched block scales, FP8 scales from the largest weight.
#include "quantize/allocate/layer_roundings.h"

#include <algorithm>

#include "quantize/recipe/dialect.h"
#include "quantize/rounding/fp8_round.h"
#include "quantize/rounding/nvfp4_round.h"
#include "tensor/fp8.h"

namespace nibble {

using gradient::DenseLinear;

namespace {

constexpr int64_t kBandRows = 128;

TensorView rows_view(const DenseLinear& linear, int64_t row, int64_t count) {
  const int64_t cols = linear.source().cols;
  return {reinterpret_cast<const std::byte*>(linear.values().data() + row * cols), DType::f32,
          Shape{count, cols}};
}

}  // namespace

std::string_view layer_part(std::string_view module) {
  const size_t at = module.find("layers.");
  return at == std::string_view::npos ? module : module.substr(0, module.find('.', at + 7) + 1);
}

void each_band(ThreadPool& threads, int64_t rows,
               const std::function<void(int64_t row, int64_t count)>& work) {
  const auto bands = static_cast<size_t>((rows + kBandRows - 1) / kBandRows);
  threads.parallel_for(bands, 1, [&](size_t begin, size_t end) {
    for (size_t band = begin; band < end; ++band) {
      const int64_t row = static_cast<int64_t>(band) * kBandRows;
      work(row, std::min(kBandRows, rows - row));
    }
  });
}

LinearWeight LayerRoundings::round_nvfp4(const DenseLinear& linear, float amax) {
  const LinearSource& source = linear.source();
  const int64_t code_cols = source.cols / 2, scale_cols = source.cols / kNvfp4Group;
  const int exponent = global_exponent(amax);
  LinearWeight weight{.module = source.module,
                      .rows = source.rows,
                      .cols = source.cols,
                      .scheme = {WeightFormat::nvfp4, ActivationFormat::high},
                      .values = Tensor(DType::u8, {source.rows, code_cols}),
                      .scales = Tensor(DType::f8_e4m3, {source.rows, scale_cols})};
  weight.global_scale = power_of_two_global(exponent, GlobalScale::Direction::multiply);
  each_band(threads_, source.rows, [&](int64_t row, int64_t count) {
    const auto part = [&](Tensor& tensor, int64_t width) {
      return std::span(tensor.as<uint8_t>() + row * width, static_cast<size_t>(count * width));
    };
    round_nvfp4_rows(rows_view(linear, row, count),
                     {.exponent = exponent, .path = best_round_path()},
                     part(weight.values, code_cols), part(weight.scales, scale_cols));
  });
  return weight;
}

/// One scale per row where files have it so: routed experts and the head.
LinearWeight LayerRoundings::round_fp8(const DenseLinear& linear, float amax) {
  const LinearSource& source = linear.source();
  const QuantScheme scheme =
      dialect_scheme({WeightFormat::fp8_tensor, ActivationFormat::fp8_tensor},
                     Dialect::compressed_tensors, source.module);
  const bool by_row = scheme.weights == WeightFormat::fp8_channel;
  LinearWeight weight{.module = source.module,
                      .rows = source.rows,
                      .cols = source.cols,
                      .scheme = scheme,
                      .values = Tensor(DType::f8_e4m3, {source.rows, source.cols}),
                      .scales = Tensor(DType::f32, {by_row ? source.rows : 1, 1})};
  if (!by_row) weight.scales.as<float>()[0] = fp8_scale(amax);
  each_band(threads_, source.rows, [&](int64_t row, int64_t count) {
    const TensorView values = rows_view(linear, row, count);
    const auto codes = std::span(weight.values.as<uint8_t>() + row * source.cols,
                                 static_cast<size_t>(count * source.cols));
    if (by_row)
      round_fp8_channels(values, codes,
                         {weight.scales.as<float>() + row, static_cast<size_t>(count)});
    else
      round_fp8_rows(values, weight.scales.as<float>()[0], codes);
  });
  return weight;
}

const LayerRoundings::Both* LayerRoundings::of(const DenseLinear& linear) {
  const LinearSource& source = linear.source();
  if (layer_ != layer_part(source.module)) {
    rounded_.clear();
    layer_ = layer_part(source.module);
  }
  const auto known = rounded_.find(source.module);
  if (known != rounded_.end()) return &known->second;
  const float amax = largest_magnitude(reinterpret_cast<const std::byte*>(linear.values().data()),
                                       DType::f32, std::ssize(linear.values()));
  if (!(amax <= kWeightMax)) return nullptr;
  Both& made = rounded_[source.module];
  if (source.cols % kNvfp4Group == 0) made.nvfp4 = round_nvfp4(linear, amax);
  made.fp8 = round_fp8(linear, amax);
  return &made;
}

DenseLinear LayerRoundings::decoded(const LinearWeight& weight) {
  std::vector<float> values(static_cast<size_t>(weight.rows * weight.cols));
  each_band(threads_, weight.rows, [&](int64_t row, int64_t count) {
    dequantize_rows(weight, row, row + count, values.data() + row * weight.cols);
  });
  return DenseLinear::of({.module = weight.module, .rows = weight.rows, .cols = weight.cols},
                         std::move(values));
}

}  // namespace nibble
