// The gradient of log p(y) in the logits is 1 at y, less the probabilities.
#include "quantize/gradient/head_gradient.h"

#include <algorithm>
#include <numeric>

namespace nibble::gradient {
namespace {

constexpr int64_t kRows = 64;  // whose logits are in memory

void softmax(float* x, int64_t count) {
  const float highest = *std::max_element(x, x + count);
  double total = 0;
  for (int64_t i = 0; i < count; ++i) {
    x[i] = std::exp(x[i] - highest);
    total += static_cast<double>(x[i]);
  }
  for (int64_t i = 0; i < count; ++i) x[i] = static_cast<float>(x[i] / total);
}

}  // namespace

Result<HeadGradient> HeadGradient::load(const Weights& weights, const ModelConfig& config) {
  HeadGradient out;
  out.norm_ = TRY(Norm::load(weights, weights.final_norm(), config.norm, config));
  out.head_ = TRY(DenseLinear::load(weights, weights.head()));
  return out;
}

Rows HeadGradient::back(const Rows& h, const Choose& choose, const Pass& pass) const {
  Rows dh(h.count, h.width);
  for (int64_t begin = 0; begin < h.count; begin += kRows) {
    const int64_t count = std::min(kRows, h.count - begin);
    Rows input(count, h.width);
    std::copy_n(h.row(begin), count * h.width, input.values.begin());
    const Rows x = norm_.apply(input, pass.threads);
    Rows dlogits = head_.apply(x, pass.threads);
    pass.threads.parallel_for(static_cast<size_t>(count), 1, [&](size_t first, size_t last) {
      for (auto r = static_cast<int64_t>(first); r < static_cast<int64_t>(last); ++r) {
        float* p = dlogits.row(r);
        softmax(p, dlogits.width);
        const int32_t y = choose(begin + r, {p, static_cast<size_t>(dlogits.width)});
        for (int64_t i = 0; i < dlogits.width; ++i) p[i] = -p[i];
        p[y] += 1.0F;
      }
    });
    std::vector<int32_t> rows(static_cast<size_t>(count));
    std::iota(rows.begin(), rows.end(), static_cast<int32_t>(begin));
    Rows dx(count, h.width), dinput(count, h.width);
    head_.add_back(x, dlogits, dx, pass, rows);
    norm_.add_back(input, dx, dinput, pass.threads);
    std::copy_n(dinput.values.begin(), count * h.width, dh.row(begin));
  }
  return dh;
}

}  // namespace nibble::gradient
