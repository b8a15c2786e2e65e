// The matrix product.
#include "backend/reference/linear.h"

#include "tensor/activation_codec.h"
#include "tensor/float_formats.h"

namespace nibble::reference {

Result<Linear> Linear::load(const Weights& weights, const LinearSource& source,
                            const LinearOptions& options) {
  Linear linear;
  linear.options_ = options;
  if (source.present()) linear.weight_ = TRY(weights.load(source));
  return linear;
}

void Linear::round_input(float* x) const {
  const int64_t k = weight_.cols;
  const bool declared = options_.mode == Activations::declared;
  if (options_.mode == Activations::bf16 || (declared && options_.rounding == PromptRounding::bf16))
    round_all(std::span(x, static_cast<size_t>(k)));
  if (!declared) return;
  switch (weight_.scheme.activations) {
    case ActivationFormat::high:
      return;
    case ActivationFormat::nvfp4:
      round_nvfp4_activations(x, {.global = weight_.input_scale, .scales = options_.input_scales},
                              k, x);
      return;
    case ActivationFormat::fp8_token:
      round_fp8_dynamic(x, SourceType::f32, k, k, x);
      return;
    case ActivationFormat::fp8_group:
      round_fp8_dynamic(x, SourceType::f32, kFp8Block, k, x);
      return;
    case ActivationFormat::fp8_tensor:
      round_fp8_static(x, weight_.input_scale.value, SourceType::f32, k, x);
      return;
  }
}

void Linear::tap(const std::vector<float>& x, int64_t first_row) const {
  if (options_.taps == nullptr || *options_.taps == nullptr) return;
  InputStatistics* wanted = (*options_.taps)->find(weight_.module);
  if (wanted == nullptr) return;
  ThreadPool alone(1);
  wanted->add({.x = x.data(),
               .count = static_cast<int64_t>(x.size()) / weight_.cols,
               .stride = weight_.cols,
               .first_token = (*options_.taps)->first_token() + first_row},
              alone);
}

std::vector<float> Linear::apply(const std::vector<float>& x, int64_t first_row) const {
  const auto k = static_cast<size_t>(weight_.cols);
  const auto n = static_cast<size_t>(weight_.rows);
  CHECK(k > 0 && x.size() % k == 0, weight_.module, ": input of ", x.size(), " for K ", k);
  const size_t tokens = x.size() / k;
  tap(x, first_row);
  std::vector<float> inputs = x;
  for (size_t t = 0; t < tokens; ++t) round_input(&inputs[t * k]);
  std::vector<float> y(tokens * n);
  std::vector<float> w(k);
  for (size_t row = 0; row < n; ++row) {
    this->row(static_cast<int64_t>(row), w.data());
    for (size_t t = 0; t < tokens; ++t) {
      double sum = 0.0;
      for (size_t i = 0; i < k; ++i) sum += double{w[i]} * inputs[t * k + i];
      y[t * n + row] = static_cast<float>(sum);
    }
  }
  return y;
}

}  // namespace nibble::reference
