// One pass over the gains and the rows of v_proj of each layer of attention.
#include "model/pages/kv_bounds.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/concat.h"

namespace nibble {

namespace {

std::vector<float> gains_of(std::vector<float> stored, NormKind kind) {
  if (kind == NormKind::zero_centred)
    for (float& gain : stored) gain += 1.0F;
  return stored;
}

double largest_magnitude(std::span<const float> numbers) {
  double most = 0.0;
  for (const float number : numbers) most = std::max(most, std::abs(double{number}));
  return most;
}

/// Dimensions that rotate come first; YaRN multiplies cosines and sines.
double largest_key(const std::vector<float>& gains, const RopeConfig& rope) {
  const auto rotated = static_cast<size_t>(rope.rotary_dims);
  const double factor = rope.yarn ? rope.yarn->attention_factor : 1.0;
  return std::sqrt(static_cast<double>(gains.size())) *
         std::max(factor * largest_magnitude(std::span(gains).first(rotated)),
                  largest_magnitude(std::span(gains).subspan(rotated)));
}

double largest_value(const LinearWeight& v, const std::vector<float>& gains) {
  std::vector<float> row(gains.size());
  double most = 0.0;
  for (int64_t i = 0; i < v.rows; ++i) {
    dequantize_rows(v, i, i + 1, row.data());
    double squares = 0.0;
    for (size_t j = 0; j < row.size(); ++j)
      squares += double{row[j]} * row[j] * double{gains[j]} * gains[j];
    most = std::max(most, squares);
  }
  return std::sqrt(most * static_cast<double>(gains.size()));
}

class Bounder {
 public:
  Bounder(const Weights& weights, const ModelConfig& config) : weights_(weights), config_(config) {}

  Result<void> layer(const LayerSources& sources, const KvScale& scale, const std::string& name) {
    const std::vector<float> key_gains =
        gains_of(TRY(weights_.load(sources.attention.k_norm)), config_.norm);
    raise(bounds_.keys, largest_key(key_gains, config_.attention.rope) / scale.keys, name);
    const LinearWeight v = TRY(weights_.load(sources.attention.v));
    const std::vector<float> gains = gains_of(TRY(weights_.load(sources.input_norm)), config_.norm);
    raise(bounds_.values, largest_value(v, gains) / scale.values, name);
    return {};
  }
  KvBounds bounds() const { return bounds_; }

 private:
  static void raise(KvBound& bound, double found, const std::string& layer) {
    if (found > bound.most) bound = {.most = found, .layer = layer};
  }

  const Weights& weights_;
  const ModelConfig& config_;
  KvBounds bounds_;
};

}  // namespace

Result<KvBounds> bound_kv(const Weights& weights, const ModelConfig& config,
                          const std::vector<KvScale>& scales) {
  Bounder bounder(weights, config);
  size_t attention = 0;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    if (config.layers[i] != LayerKind::attention) continue;
    const KvScale scale = scales.empty() ? KvScale{} : scales[attention];
    ++attention;
    TRY(bounder.layer(weights.layers()[i], scale, concat("layer ", i)));
  }
  if (weights.mtp()) TRY(bounder.layer(weights.mtp()->layer, {}, "the MTP layer"));
  return bounder.bounds();
}

}  // namespace nibble
