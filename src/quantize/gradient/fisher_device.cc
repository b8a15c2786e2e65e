// The device has the numbers; this has the order of work and gathers the squares.
#include "quantize/gradient/fisher_device.h"

#include <chrono>

#include "base/check.h"
#include "quantize/gradient/gradient_squares.h"
#include "quantize/gradient/stretches.h"

namespace nibble::gradient {
namespace {

using Clock = std::chrono::steady_clock;

/// Adds the time of its life to a sum.
class Span {
 public:
  explicit Span(double& sum) : sum_(sum) {}
  ~Span() { sum_ += std::chrono::duration<double>(Clock::now() - begin_).count(); }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  double& sum_;
  Clock::time_point begin_ = Clock::now();
};

class DeviceSweep {
 public:
  explicit DeviceSweep(const FisherRequest& request)
      : request_(request), device_(*request.device), squares_(request.wants) {}

  Result<void> run_group(const Stretch& group);
  FisherWeights weights() &&;

 private:
  Result<void> begin(const Stretch& group);
  Result<void> open(int layer, int next);
  template <typename Work>
  Result<void> each_pass(double& seconds, const Work& work);
  GradientPass pass_of(const Stretch& stretch) const {
    return {.first_row = stretch.first_token - group_->first_token, .samples = stretch.samples};
  }
  SquaresSeen gather(const Stretch& stretch, int draw);
  void head(const Stretch& stretch, int draw);

  const FisherRequest& request_;
  GradientDevice& device_;
  GradientSquares squares_;
  FisherSeconds spent_;
  const Stretch* group_ = nullptr;
  std::vector<Stretch> passes_;
};

Result<void> DeviceSweep::open(int layer, int next) {
  const Span span(spent_.weights);
  return device_.open(layer, next);
}

template <typename Work>
Result<void> DeviceSweep::each_pass(double& seconds, const Work& work) {
  const Span span(seconds);
  for (const Stretch& stretch : passes_) {
    work(stretch);
    if (request_.watch.rows_done) request_.watch.rows_done(stretch.rows());
    if (request_.watch.check) TRY(request_.watch.check());
  }
  return {};
}

SquaresSeen DeviceSweep::gather(const Stretch& stretch, int draw) {
  const GradientSquares::Place place = {.first_token = stretch.first_token, .draw = draw};
  return [this, place](const LinearSquares& squares) {
    const Span span(spent_.squares);
    squares_.add(squares, place);
  };
}

void DeviceSweep::head(const Stretch& stretch, int draw) {
  std::vector<double> random;
  for (int64_t r = 0; r < stretch.rows(); ++r)
    random.push_back(label_random(request_.options.seed, draw, stretch.first_token + r));
  device_.head(pass_of(stretch), draw, random, gather(stretch, draw));
}

Result<void> DeviceSweep::begin(const Stretch& group) {
  const Span span(spent_.samples);
  return device_.begin(group.first_token, group.rows());
}

Result<void> DeviceSweep::run_group(const Stretch& group) {
  group_ = &group;
  const PassLimits limits = device_.pass_limits();
  passes_ = stretches_of(group, {.rows = limits.rows, .samples = limits.sequences});
  TRY(begin(group));
  const int layers = request_.config.layer_count(), draws = request_.options.label_draws;
  for (int layer = 0; layer < layers; ++layer) {
    TRY(open(layer, layer + 1));
    TRY(each_pass(spent_.forward,
                  [&](const Stretch& stretch) { device_.forward(pass_of(stretch)); }));
  }
  TRY(open(layers, layers - 1));
  TRY(each_pass(spent_.head, [&](const Stretch& stretch) {
    for (int draw = 0; draw < draws; ++draw) head(stretch, draw);
  }));
  for (int layer = layers - 1; layer >= 0; --layer) {
    TRY(open(layer, layer - 1));
    TRY(each_pass(spent_.backward, [&](const Stretch& stretch) {
      for (int draw = 0; draw < draws; ++draw)
        device_.backward(pass_of(stretch), draw, gather(stretch, draw));
    }));
    device_.finish_layer();
  }
  return {};
}

FisherWeights DeviceSweep::weights() && {
  FisherSeconds spent = spent_;
  FisherWeights weights;
  {
    const Span span(spent.squares);
    weights = std::move(squares_).weights(request_.options.plain_share);
  }
  if (request_.seconds != nullptr) *request_.seconds = spent;
  return weights;
}

}  // namespace

Result<FisherWeights> gather_fisher_weights_there(const FisherRequest& request) {
  CHECK(!request.also_seen, "a device shows no linears");
  DeviceSweep sweep(request);
  for (const Stretch& group :
       stretches_of(request.samples.lengths, 0, {.rows = request.device->group_rows()}))
    TRY(sweep.run_group(group));
  return std::move(sweep).weights();
}

}  // namespace nibble::gradient
