// The sweep: samples in groups whose residual streams fit; of each group forward through all
// layers, then backward, every layer computed again for its gradient. Weights are read twice for a
// group.
#include "quantize/gradient/fisher_weights.h"

#include <algorithm>

#include "base/check.h"
#include "quantize/gradient/fisher_device.h"
#include "quantize/gradient/gradient_squares.h"
#include "quantize/gradient/head_gradient.h"
#include "quantize/gradient/layer_gradient.h"
#include "quantize/gradient/stretches.h"
#include "tensor/float_formats.h"

namespace nibble {
namespace {

using namespace gradient;

constexpr int64_t kPassRows = 1024;  // of a pass, or one longer sample

/// A token has a stream between all layers, and a gradient for each draw.
int64_t token_bytes(const ModelConfig& config, const FisherOptions& options) {
  return int64_t{config.hidden} * (config.layer_count() + 1 + options.label_draws) *
         int64_t{sizeof(float)};
}

class FisherSweep {
 public:
  explicit FisherSweep(const FisherRequest& request)
      : request_(request), threads_(request.options.threads), squares_(request.wants) {}

  Result<void> run_group(const Stretch& group);
  FisherWeights weights() && { return std::move(squares_).weights(request_.options.plain_share); }

 private:
  void begin(const Stretch& group);
  Pass pass_of(const Stretch& stretch, int draw);
  Result<void> after(const Stretch& stretch);
  Result<void> forward(int layer);
  Result<void> backward_head();
  Result<void> backward(int layer);
  int32_t draw_label(int64_t token, int draw, std::span<const float> probabilities) const;
  /// Rows of a stretch of the group.
  Rows rows_of(const Rows& all, const Stretch& stretch) const;
  void put(const Rows& rows, const Stretch& stretch, Rows& all) const;

  const FisherRequest& request_;
  ThreadPool threads_;
  GradientSquares squares_;
  int64_t first_token_ = 0;  // of the group
  std::vector<Stretch> passes_;
  std::vector<Rows> states_;     // [layers + 1] the streams before each layer, and after the last
  std::vector<Rows> gradients_;  // [draws] where the backward pass is
};

Rows FisherSweep::rows_of(const Rows& all, const Stretch& stretch) const {
  Rows rows(stretch.rows(), all.width);
  std::copy_n(all.row(stretch.first_token - first_token_), rows.values.size(), rows.values.begin());
  return rows;
}

void FisherSweep::put(const Rows& rows, const Stretch& stretch, Rows& all) const {
  std::ranges::copy(rows.values, all.row(stretch.first_token - first_token_));
}

void FisherSweep::begin(const Stretch& group) {
  first_token_ = group.first_token;
  passes_ = stretches_of(group, {.rows = kPassRows});
  states_.assign(static_cast<size_t>(request_.config.layer_count()) + 1,
                 Rows(group.rows(), request_.config.hidden));
  gradients_.assign(static_cast<size_t>(request_.options.label_draws), {});
  const auto from = request_.samples.hidden.begin() + first_token_ * request_.config.hidden;
  std::transform(from, from + static_cast<int64_t>(states_[0].values.size()),
                 states_[0].values.begin(), bf16_to_float);
}

/// A pass that gathers squares as those of a draw.
Pass FisherSweep::pass_of(const Stretch& stretch, int draw) {
  const GradientSquares::Place place = {.first_token = stretch.first_token, .draw = draw};
  return {.samples = stretch.samples,
          .threads = threads_,
          .seen = [this, place](const DenseLinear& linear, const Rows& input, const Rows& gradient,
                                std::span<const int32_t> rows) {
            squares_.add(linear.source(), input, gradient, rows, place);
            if (request_.also_seen) request_.also_seen(linear, input, gradient, rows);
          }};
}

Result<void> FisherSweep::after(const Stretch& stretch) {
  if (request_.watch.rows_done) request_.watch.rows_done(stretch.rows());
  return request_.watch.check ? request_.watch.check() : Result<void>{};
}

Result<void> FisherSweep::forward(int layer) {
  const auto at = static_cast<size_t>(layer);
  const LayerGradient model = TRY(LayerGradient::load(request_.weights, request_.config, layer));
  for (const Stretch& stretch : passes_) {
    LayerGradient::Trace trace;
    put(model.run(rows_of(states_[at], stretch), pass_of(stretch, 0), trace), stretch,
        states_[at + 1]);
    TRY(after(stretch));
  }
  return {};
}

/// The token at which the probabilities, summed up, pass a random number of this token's own.
int32_t FisherSweep::draw_label(int64_t token, int draw,
                                std::span<const float> probabilities) const {
  const double random = label_random(request_.options.seed, draw, token);
  double sum = 0;
  for (size_t i = 0; i < probabilities.size(); ++i) {
    sum += static_cast<double>(probabilities[i]);
    if (random < sum) return static_cast<int32_t>(i);
  }
  return static_cast<int32_t>(std::ranges::max_element(probabilities) -
                              probabilities.begin());  // sums end below 1, or NaN
}

Result<void> FisherSweep::backward_head() {
  const HeadGradient head = TRY(HeadGradient::load(request_.weights, request_.config));
  for (Rows& gradient : gradients_) gradient = Rows(states_.back().count, request_.config.hidden);
  for (const Stretch& stretch : passes_) {
    const Rows h = rows_of(states_.back(), stretch);
    for (int draw = 0; draw < request_.options.label_draws; ++draw)
      put(head.back(
              h,
              [&](int64_t row, std::span<const float> probabilities) {
                return draw_label(stretch.first_token + row, draw, probabilities);
              },
              pass_of(stretch, draw)),
          stretch, gradients_[static_cast<size_t>(draw)]);
    TRY(after(stretch));
  }
  return {};
}

Result<void> FisherSweep::backward(int layer) {
  const LayerGradient model = TRY(LayerGradient::load(request_.weights, request_.config, layer));
  for (const Stretch& stretch : passes_) {
    LayerGradient::Trace trace;
    model.run(rows_of(states_[static_cast<size_t>(layer)], stretch), pass_of(stretch, 0), trace);
    for (int draw = 0; draw < request_.options.label_draws; ++draw) {
      Rows& gradient = gradients_[static_cast<size_t>(draw)];
      put(model.back(trace, rows_of(gradient, stretch), pass_of(stretch, draw)), stretch, gradient);
    }
    TRY(after(stretch));
  }
  return {};
}

Result<void> FisherSweep::run_group(const Stretch& group) {
  begin(group);
  const int layers = request_.config.layer_count();
  for (int layer = 0; layer < layers; ++layer) TRY(forward(layer));
  TRY(backward_head());
  for (int layer = layers - 1; layer >= 0; --layer) {
    TRY(backward(layer));
    states_[static_cast<size_t>(layer) + 1] = {};
  }
  return {};
}

}  // namespace

Result<FisherWeights> gather_fisher_weights(const FisherRequest& request) {
  CHECK(request.options.label_draws > 0 && request.wants, "draws ", request.options.label_draws);
  if (request.device != nullptr) return gather_fisher_weights_there(request);
  FisherSweep sweep(request);
  const int64_t rows = std::max<int64_t>(
      1, request.options.states_bytes_max / token_bytes(request.config, request.options));
  for (const Stretch& group : stretches_of(request.samples.lengths, 0, {.rows = rows}))
    TRY(sweep.run_group(group));
  return std::move(sweep).weights();
}

int64_t fisher_rows(int64_t tokens, const ModelConfig& config) {
  return tokens * (2 * int64_t{config.layer_count()} + 1);
}

int64_t fisher_state_bytes(int64_t tokens, int64_t longest, const ModelConfig& config,
                           const FisherOptions& options) {
  const int64_t rows = options.states_bytes_max / token_bytes(config, options);
  return std::min(tokens, std::max(longest, rows)) * token_bytes(config, options);
}

}  // namespace nibble
