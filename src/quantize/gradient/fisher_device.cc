// The device has the numbers; this has the order of work and gathers the squares.
#include "quantize/gradient/fisher_device.h"

#include "base/check.h"
#include "quantize/gradient/gradient_squares.h"
#include "quantize/gradient/stretches.h"

namespace nibble::gradient {
namespace {

class DeviceSweep {
 public:
  explicit DeviceSweep(const FisherRequest& request)
      : request_(request), device_(*request.device), squares_(request.wants) {}

  Result<void> run_group(const Stretch& group);
  FisherWeights weights() && { return std::move(squares_).weights(request_.options.plain_share); }

 private:
  template <typename Work>
  Result<void> each_pass(const Work& work);
  GradientPass pass_of(const Stretch& stretch) const {
    return {.first_row = stretch.first_token - group_->first_token, .samples = stretch.samples};
  }
  SquaresSeen gather(const Stretch& stretch, int draw);
  void head(const Stretch& stretch, int draw);

  const FisherRequest& request_;
  GradientDevice& device_;
  GradientSquares squares_;
  const Stretch* group_ = nullptr;
  std::vector<Stretch> passes_;
};

template <typename Work>
Result<void> DeviceSweep::each_pass(const Work& work) {
  for (const Stretch& stretch : passes_) {
    work(stretch);
    if (request_.watch.rows_done) request_.watch.rows_done(stretch.rows());
    if (request_.watch.check) TRY(request_.watch.check());
  }
  return {};
}

SquaresSeen DeviceSweep::gather(const Stretch& stretch, int draw) {
  const GradientSquares::Place place = {.first_token = stretch.first_token, .draw = draw};
  return [this, place](const LinearSquares& squares) { squares_.add(squares, place); };
}

void DeviceSweep::head(const Stretch& stretch, int draw) {
  std::vector<double> random;
  for (int64_t r = 0; r < stretch.rows(); ++r)
    random.push_back(label_random(request_.options.seed, draw, stretch.first_token + r));
  device_.head(pass_of(stretch), draw, random, gather(stretch, draw));
}

Result<void> DeviceSweep::run_group(const Stretch& group) {
  group_ = &group;
  const PassLimits limits = device_.pass_limits();
  passes_ = stretches_of(group, {.rows = limits.rows, .samples = limits.sequences});
  const int64_t hidden = request_.config.hidden;
  TRY(device_.begin(std::span(request_.samples.hidden)
                        .subspan(static_cast<size_t>(group.first_token * hidden),
                                 static_cast<size_t>(group.rows() * hidden))));
  const int layers = request_.config.layer_count(), draws = request_.options.label_draws;
  for (int layer = 0; layer < layers; ++layer) {
    TRY(device_.open(layer, layer + 1));
    TRY(each_pass([&](const Stretch& stretch) { device_.forward(pass_of(stretch)); }));
  }
  TRY(device_.open(layers, layers - 1));
  TRY(each_pass([&](const Stretch& stretch) {
    for (int draw = 0; draw < draws; ++draw) head(stretch, draw);
  }));
  for (int layer = layers - 1; layer >= 0; --layer) {
    TRY(device_.open(layer, layer - 1));
    TRY(each_pass([&](const Stretch& stretch) {
      for (int draw = 0; draw < draws; ++draw)
        device_.backward(pass_of(stretch), draw, gather(stretch, draw));
    }));
  }
  return {};
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
