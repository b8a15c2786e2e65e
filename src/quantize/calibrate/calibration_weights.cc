// The part of a calibration that weighs tokens: the sweep before the first part.
#include <chrono>

#include "quantize/calibrate/calibration_state.h"
#include "quantize/calibrate/embedded_samples.h"

namespace nibble {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

/// nullptr: all tokens count alike, as of a linear that no token of the sweep came to.
const TokenWeights* Calibration::State::weights_of(const TappedInput& input) const {
  if (!fisher || input.kind == SecondMoment::none) return nullptr;
  const auto found = fisher->find(input.module);
  return found == fisher->end() ? nullptr : &found->second;
}

/// The sweep, once, before the first part.
Result<void> Calibration::State::weigh_tokens() {
  if (!options.fisher || fisher) return {};
  const auto begin = Clock::now();
  std::unique_ptr<GradientDevice> device = TRY(options.runner->gradient_device(
      {.rows = data.tokens(), .longest = data.longest(), .draws = options.fisher->label_draws}));
  const double taken = since(begin);
  const LayerSamples samples = device == nullptr
                                   ? TRY(embedded_samples(checkpoint, weights, config, data))
                                   : sample_lengths(data);
  fisher = TRY(gather_fisher_weights({.weights = weights,
                                      .config = config,
                                      .samples = samples,
                                      .wants = options.wants_moment,
                                      .options = *options.fisher,
                                      .device = device.get(),
                                      .seconds = &sweep_parts,
                                      .watch = watch()}));
  const auto giving = Clock::now();
  device.reset();
  sweep_parts.memory += taken + since(giving);
  sweep_seconds = since(begin);
  seconds += sweep_seconds;
  return {};
}

/// Errors: unsupported by the runner.
Result<void> Calibration::State::check_weighing() const {
  if (options.fisher && !options.runner->weighs_tokens())
    return make_error(ErrorCode::unsupported,
                      {.what = concat("weights of tokens on ", options.runner->name()),
                       .expected = "a backend that knows them",
                       .advice = "calibrate on the CPU (--backend cpu)"});
  return {};
}

/// To the report.
void Calibration::State::add_weighing(Json& out) const {
  if (!options.fisher) return;
  out.set("second_moments", "fisher");
  out.set("plain_share", options.fisher->plain_share);
  out.set("label_draws", options.fisher->label_draws);
  out.set("label_seed", static_cast<int64_t>(options.fisher->seed));
}

}  // namespace nibble
