// Sums in double, like every norm of the house.
#include "quantize/gradient/norm_gradient.h"

namespace nibble::gradient {
namespace {

double scale_of(const Norm& norm, const float* x) {
  double squares = 0;
  for (int64_t i = 0; i < norm.width(); ++i) squares += static_cast<double>(x[i]) * x[i];
  return 1.0 / std::sqrt(squares / static_cast<double>(norm.width()) + norm.eps);
}

}  // namespace

Result<Norm> Norm::load(const Weights& weights, const VectorSource& source, NormKind kind,
                        const ModelConfig& config) {
  Norm norm{.weight = TRY(weights.load(source)), .eps = static_cast<double>(config.rms_eps)};
  if (kind == NormKind::zero_centred)
    for (float& w : norm.weight) w += 1.0F;
  return norm;
}

void Norm::apply(const float* x, float* y) const {
  const double scale = scale_of(*this, x);
  for (int64_t i = 0; i < width(); ++i) y[i] = static_cast<float>(x[i] * scale * weight[i]);
}

/// With s the scale: dx_i = s w_i dy_i - x_i s^3 / n sum_j(x_j w_j dy_j).
void Norm::add_back(const float* x, const float* dy, float* dx) const {
  const double scale = scale_of(*this, x);
  double along = 0;
  for (int64_t i = 0; i < width(); ++i)
    along += static_cast<double>(x[i]) * weight[i] * static_cast<double>(dy[i]);
  along *= scale * scale * scale / static_cast<double>(width());
  for (int64_t i = 0; i < width(); ++i)
    dx[i] += static_cast<float>(scale * weight[i] * dy[i] - x[i] * along);
}

Rows Norm::apply(const Rows& x, ThreadPool& threads) const {
  Rows y(x.count, x.width);
  threads.parallel_for(static_cast<size_t>(x.count), 16, [&](size_t begin, size_t end) {
    for (auto r = static_cast<int64_t>(begin); r < static_cast<int64_t>(end); ++r)
      apply(x.row(r), y.row(r));
  });
  return y;
}

void Norm::add_back(const Rows& x, const Rows& dy, Rows& dx, ThreadPool& threads) const {
  threads.parallel_for(static_cast<size_t>(x.count), 16, [&](size_t begin, size_t end) {
    for (auto r = static_cast<int64_t>(begin); r < static_cast<int64_t>(end); ++r)
      add_back(x.row(r), dy.row(r), dx.row(r));
  });
}

}  // namespace nibble::gradient
