// The tower in plain loops, sums in double.
#include "backend/reference/vision.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace nibble::reference {
namespace {

/// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
double gelu_tanh(double x) {
  const double inner = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1.0 + std::tanh(inner));
}
/// 0.5 x (1 + erf(x / sqrt(2))).
double gelu_exact(double x) { return 0.5 * x * (1.0 + std::erf(x / std::numbers::sqrt2)); }

template <typename Function>
void apply_to(std::vector<float>& x, const Function& function) {
  for (float& value : x) value = static_cast<float>(function(double{value}));
}

}  // namespace

Result<LayerNorm> LayerNorm::load(const Weights& weights, const LayerNormSource& source) {
  LayerNorm norm;
  norm.weight = TRY(weights.load(source.weight));
  norm.bias = TRY(weights.load(source.bias));
  return norm;
}

std::vector<float> LayerNorm::apply(const std::vector<float>& x) const {
  const size_t n = weight.size();
  std::vector<float> out(x.size());
  for (size_t at = 0; at < x.size(); at += n) {
    double mean = 0.0;
    for (size_t i = 0; i < n; ++i) mean += x[at + i];
    mean /= static_cast<double>(n);
    double variance = 0.0;
    for (size_t i = 0; i < n; ++i) variance += (x[at + i] - mean) * (x[at + i] - mean);
    variance /= static_cast<double>(n);
    const double scale = 1.0 / std::sqrt(variance + double{VisionConfig::kNormEps});
    for (size_t i = 0; i < n; ++i)
      out[at + i] = static_cast<float>((x[at + i] - mean) * scale * weight[i] + bias[i]);
  }
  return out;
}

Result<Biased> Biased::load(const Weights& weights, const BiasedSource& source,
                            const LinearOptions& options) {
  Biased biased;
  biased.weight = TRY(Linear::load(weights, source.weight, options));
  biased.bias = TRY(weights.load(source.bias));
  return biased;
}

std::vector<float> Biased::apply(const std::vector<float>& x) const {
  std::vector<float> y = weight.apply(x);
  for (size_t i = 0; i < y.size(); ++i) y[i] += bias[i % bias.size()];
  return y;
}

Result<Vision> Vision::load(const Weights& weights, const VisionConfig& config,
                            const LinearOptions& options) {
  const VisionSources& sources = *weights.vision();
  Vision vision;
  vision.config_ = config;
  vision.patches_ = TRY(Biased::load(weights, sources.patches, options));
  vision.positions_ = TRY(weights.load(sources.positions));
  for (const VisionBlockSources& from : sources.blocks) {
    Block block;
    block.norm1 = TRY(LayerNorm::load(weights, from.norm1));
    block.norm2 = TRY(LayerNorm::load(weights, from.norm2));
    block.qkv = TRY(Biased::load(weights, from.qkv, options));
    block.proj = TRY(Biased::load(weights, from.proj, options));
    block.fc1 = TRY(Biased::load(weights, from.fc1, options));
    block.fc2 = TRY(Biased::load(weights, from.fc2, options));
    vision.blocks_.push_back(std::move(block));
  }
  vision.merger_norm_ = TRY(LayerNorm::load(weights, sources.merger_norm));
  vision.merger_fc1_ = TRY(Biased::load(weights, sources.merger_fc1, options));
  vision.merger_fc2_ = TRY(Biased::load(weights, sources.merger_fc2, options));
  return vision;
}

void Vision::reserve(int64_t workspace_rows, int32_t media_rows) {
  const auto width = static_cast<size_t>(config_.hidden);
  x_.assign(static_cast<size_t>(workspace_rows) * width, 0.0F);
  qkv_.assign(static_cast<size_t>(workspace_rows) * 3 * width, 0.0F);
  media_.assign(place_of(media_rows), 0.0F);
}

std::vector<float> Vision::rows(const VisionPiece& piece) const {
  const auto first = x_.begin() + (piece.frame->row_begin + piece.begin) * config_.hidden;
  return {first, first + (piece.end - piece.begin) * config_.hidden};
}

void Vision::add(const VisionPiece& piece, const std::vector<float>& y) {
  const auto first = static_cast<size_t>((piece.frame->row_begin + piece.begin) * config_.hidden);
  for (size_t i = 0; i < y.size(); ++i) x_[first + i] += y[i];
}

void Vision::embed(const VisionPiece& piece) {
  const MediaPatches& media = *piece.frame->media;
  const int numbers = config_.patch_values();
  const int channel = numbers / VisionConfig::kChannels;
  const auto width = static_cast<size_t>(config_.hidden);
  std::vector<float> levels;
  for (int64_t p = piece.begin; p < piece.end; ++p) {
    const int64_t patch = piece.frame->t * media.grid.frame_patches() + p;
    for (int i = 0; i < numbers; ++i) {
      const uint8_t level = media.levels[static_cast<size_t>(patch * numbers + i)];
      levels.push_back(media.values[static_cast<size_t>(i / channel)][level]);
    }
  }
  const std::vector<float> y = patches_.apply(levels);
  for (int64_t p = piece.begin; p < piece.end; ++p) {
    const PatchPlace place = patch_place(p, media.grid.w, config_.merge);
    const TableTaps taps = table_taps(place, media.grid, config_.table_side);
    const size_t to = static_cast<size_t>(piece.frame->row_begin + p) * width;
    for (size_t i = 0; i < width; ++i) {
      double position = 0.0;
      for (size_t tap = 0; tap < 4; ++tap)
        position +=
            double{taps.weights[tap]} * positions_[static_cast<size_t>(taps.rows[tap]) * width + i];
      x_[to + i] =
          static_cast<float>(y[static_cast<size_t>(p - piece.begin) * width + i] + position);
    }
  }
}

/// Pairs (i, i + head_dim / 2) turn by an angle of the row (first half of the pairs), then of the
/// column.
void Vision::turn(float* head, PatchPlace place) const {
  const int half = config_.head_dim() / 2;
  const int quarter = half / 2;
  for (int i = 0; i < half; ++i) {
    const double exponent = -2.0 * (i % quarter) / half;
    const int at = i < quarter ? place.row : place.column;
    const double angle = at * std::pow(VisionConfig::kRopeTheta, exponent);
    const double low = head[i];
    const double high = head[i + half];
    head[i] = static_cast<float>(low * std::cos(angle) - high * std::sin(angle));
    head[i + half] = static_cast<float>(high * std::cos(angle) + low * std::sin(angle));
  }
}

void Vision::project(int block, const VisionPiece& piece) {
  const Block& b = blocks_[static_cast<size_t>(block)];
  std::vector<float> qkv = b.qkv.apply(b.norm1.apply(rows(piece)));
  const auto width = static_cast<size_t>(config_.hidden);
  for (int64_t p = piece.begin; p < piece.end; ++p) {
    float* row = &qkv[static_cast<size_t>(p - piece.begin) * 3 * width];
    const PatchPlace place = patch_place(p, piece.frame->media->grid.w, config_.merge);
    for (int head = 0; head < 2 * config_.heads; ++head)  // the heads of q, then those of k
      turn(row + int64_t{head} * config_.head_dim(), place);
  }
  std::ranges::copy(
      qkv, qkv_.begin() + (piece.frame->row_begin + piece.begin) * 3 * static_cast<int64_t>(width));
}

/// Every patch of the piece against all of its frame; scale head_dim^-0.5.
std::vector<float> Vision::attention(const VisionPiece& piece) const {
  const int64_t width = config_.hidden;
  const int64_t dims = config_.head_dim();
  const int64_t count = piece.frame->patches();
  const double scale = 1.0 / std::sqrt(static_cast<double>(dims));
  const float* frame = &qkv_[static_cast<size_t>(piece.frame->row_begin * 3 * width)];
  std::vector<float> out(static_cast<size_t>((piece.end - piece.begin) * width));
  std::vector<double> weights(static_cast<size_t>(count));
  for (int64_t p = piece.begin; p < piece.end; ++p)
    for (int64_t head = 0; head < config_.heads; ++head) {
      const float* q = frame + p * 3 * width + head * dims;
      const auto key = [&](int64_t j) { return frame + (3 * j + 1) * width + head * dims; };
      double top = -INFINITY;
      for (int64_t j = 0; j < count; ++j) {
        double score = 0.0;
        for (int64_t i = 0; i < dims; ++i) score += double{q[i]} * key(j)[i];
        weights[static_cast<size_t>(j)] = score * scale;
        top = std::max(top, score * scale);
      }
      double sum = 0.0;
      for (double& w : weights) sum += w = std::exp(w - top);
      float* to = &out[static_cast<size_t>((p - piece.begin) * width + head * dims)];
      for (int64_t i = 0; i < dims; ++i) {
        double value = 0.0;
        for (int64_t j = 0; j < count; ++j)
          value += weights[static_cast<size_t>(j)] * key(j)[width + i];
        to[i] = static_cast<float>(value / sum);
      }
    }
  return out;
}

void Vision::attend(int block, const VisionPiece& piece) {
  const Block& b = blocks_[static_cast<size_t>(block)];
  add(piece, b.proj.apply(attention(piece)));
  std::vector<float> inner = b.fc1.apply(b.norm2.apply(rows(piece)));
  apply_to(inner, gelu_tanh);
  add(piece, b.fc2.apply(inner));
}

void Vision::merge(const VisionPiece& piece) {
  const int64_t merged = config_.merged_patches();
  CHECK(piece.begin % merged == 0 && piece.end % merged == 0, "patches ", piece.begin, " to ",
        piece.end, " are not whole rows");
  std::vector<float> inner = merger_fc1_.apply(merger_norm_.apply(rows(piece)));
  apply_to(inner, gelu_exact);
  const std::vector<float> y = merger_fc2_.apply(inner);
  for (int64_t row = piece.begin / merged; row < piece.end / merged; ++row)
    std::copy_n(y.begin() + (row - piece.begin / merged) * config_.out, config_.out,
                media_.begin() +
                    static_cast<int64_t>(place_of(piece.frame->places[static_cast<size_t>(row)])));
}

bool Vision::finite(std::span<const int32_t> places) const {
  return std::ranges::all_of(places, [&](int32_t place) {
    return std::all_of(media_row(place), media_row(place) + config_.out,
                       [](float x) { return std::isfinite(x); });
  });
}

void Vision::poison(std::span<const int32_t> places) {
  for (const int32_t place : places)
    std::fill_n(media_.begin() + static_cast<int64_t>(place_of(place)), config_.out,
                std::numeric_limits<float>::quiet_NaN());
}

}  // namespace nibble::reference
