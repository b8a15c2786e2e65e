// Every input that the sweep shows is met by both roundings of the linear.
#include "quantize/allocate/format_losses.h"

#include <algorithm>
#include <cmath>

#include "quantize/allocate/layer_roundings.h"
#include "tensor/float_formats.h"
#include "tensor/fp8.h"

namespace nibble {
namespace {

using gradient::DenseLinear;
using gradient::Rows;

/// A row [cols] as FP8 activations under its own scale, as engines compute them at run time.
void round_activations(const float* x, int64_t cols, float* out) {
  float amax = 0;
  for (int64_t i = 0; i < cols; ++i) amax = std::max(amax, std::abs(x[i]));
  const float scale = fp8_scale(amax);
  const auto& values = e4m3_values();
  for (int64_t i = 0; i < cols; ++i) out[i] = values[finite_to_e4m3(x[i] / scale)] * scale;
}

class LossGatherer {
 public:
  explicit LossGatherer(const FormatLossRequest& request)
      : request_(request), threads_(request.options.threads) {}

  void see(const DenseLinear& linear, const Rows& x, const Rows& gradient);
  Result<void> check() const;
  /// Means over tokens and draws.
  FormatLosses losses() &&;

 private:
  Rows fp8_inputs(const Rows& x);
  double half_squares(const Rows& y, const Rows& exact, const Rows& gradient);

  const FormatLossRequest& request_;
  ThreadPool threads_;
  LayerRoundings roundings_{threads_};
  FormatLosses sums_;
  std::string broken_;  // the first linear with numbers that are not finite
};

Rows LossGatherer::fp8_inputs(const Rows& x) {
  Rows out(x.count, x.width);
  each_band(threads_, x.count, [&](int64_t row, int64_t count) {
    for (int64_t r = row; r < row + count; ++r) round_activations(x.row(r), x.width, out.row(r));
  });
  return out;
}

/// The sum over rows of 1/2 (g . (y - exact))^2, in the order of rows.
double LossGatherer::half_squares(const Rows& y, const Rows& exact, const Rows& gradient) {
  std::vector<double> products(static_cast<size_t>(y.count));
  each_band(threads_, y.count, [&](int64_t row, int64_t count) {
    for (int64_t r = row; r < row + count; ++r) {
      double product = 0;
      for (int64_t i = 0; i < y.width; ++i)
        product += static_cast<double>(gradient.row(r)[i]) *
                   (static_cast<double>(y.row(r)[i]) - static_cast<double>(exact.row(r)[i]));
      products[static_cast<size_t>(r)] = product;
    }
  });
  double sum = 0;
  for (const double product : products) sum += product * product / 2;
  return sum;
}

void LossGatherer::see(const DenseLinear& linear, const Rows& x, const Rows& gradient) {
  const LinearSource& source = linear.source();
  if (!request_.wants(source.module) || !broken_.empty()) return;
  const LayerRoundings::Both* made = roundings_.of(linear);
  if (made == nullptr) {
    broken_ = source.module;
    return;
  }
  const Rows exact = linear.apply(x, threads_);
  FormatLoss& sum = sums_[source.module];
  if (made->nvfp4)
    sum.nvfp4 += half_squares(roundings_.decoded(*made->nvfp4).apply(x, threads_), exact, gradient);
  sum.fp8 +=
      half_squares(roundings_.decoded(made->fp8).apply(fp8_inputs(x), threads_), exact, gradient);
  if (!std::isfinite(sum.nvfp4) || !std::isfinite(sum.fp8)) broken_ = source.module;
}

Result<void> LossGatherer::check() const {
  if (!broken_.empty())
    return make_error(ErrorCode::corrupt, {.what = broken_,
                                           .expected = "finite weights, inputs and gradients",
                                           .found = "others",
                                           .advice = "`nibble verify` looks for broken weights"});
  return request_.watch.check ? request_.watch.check() : Result<void>{};
}

FormatLosses LossGatherer::losses() && {
  int64_t tokens = 0;
  for (const int64_t length : request_.samples.lengths) tokens += length;
  const double count =
      static_cast<double>(tokens) * static_cast<double>(request_.options.label_draws);
  for (auto& [module, sum] : sums_) sum = {.nvfp4 = sum.nvfp4 / count, .fp8 = sum.fp8 / count};
  return std::move(sums_);
}

}  // namespace

int64_t format_loss_bytes(const QuantPlan& plan) {
  std::map<std::string, int64_t, std::less<>> layers;  // weights
  int64_t largest_linear = 0, largest_layer = 0;       // weights; bytes
  for (const FusedGroup& group : plan.rounded)
    for (const PlannedLinear& linear : group.linears) {
      const int64_t count = linear.source.rows * linear.source.cols;
      layers[std::string(layer_part(linear.source.module))] += count;
      largest_linear = std::max(largest_linear, count);
    }
  constexpr int64_t kCodesOfSixteen = 16 + 8 + 1;  // bytes in FP8 and NVFP4
  for (const auto& [layer, count] : layers)
    largest_layer = std::max(
        largest_layer, count * int64_t{sizeof(float)} + count / kNvfp4Group * kCodesOfSixteen);
  return largest_layer + largest_linear * int64_t{sizeof(float)};
}

Result<FormatLosses> gather_format_losses(const FormatLossRequest& request) {
  LossGatherer gatherer(request);
  TRY(gather_fisher_weights(
      {.weights = request.weights,
       .config = request.config,
       .samples = request.samples,
       .wants = [](const std::string&) { return false; },
       .options = request.options,
       .also_seen = [&](const DenseLinear& linear, const Rows& x, const Rows& gradient,
                        std::span<const int32_t>) { gatherer.see(linear, x, gradient); },
       .watch = {.check = [&] { return gatherer.check(); },
                 .rows_done = request.watch.rows_done}}));
  TRY(gatherer.check());
  return std::move(gatherer).losses();
}

}  // namespace nibble
