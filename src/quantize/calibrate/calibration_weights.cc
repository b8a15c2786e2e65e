// The part of a calibration that weighs tokens: the sweep before the first part.
#include <chrono>

#include "quantize/calibrate/calibration_state.h"
#include "quantize/calibrate/embedded_samples.h"

namespace nibble {

/// nullptr: all tokens count alike, as of a linear that no token of the sweep came to.
const TokenWeights* Calibration::State::weights_of(const TappedInput& input) const {
  if (!fisher || input.kind == SecondMoment::none) return nullptr;
  const auto found = fisher->find(input.module);
  return found == fisher->end() ? nullptr : &found->second;
}

/// The sweep, once, before the first part.
Result<void> Calibration::State::weigh_tokens() {
  if (!options.fisher || fisher) return {};
  const auto begin = std::chrono::steady_clock::now();
  const LayerSamples samples = TRY(embedded_samples(checkpoint, weights, config, data));
  const auto device = TRY(options.runner->gradient_device(
      {.rows = data.tokens(), .longest = data.longest(), .draws = options.fisher->label_draws}));
  fisher = TRY(gather_fisher_weights({.weights = weights,
                                      .config = config,
                                      .samples = samples,
                                      .wants = options.wants_moment,
                                      .options = *options.fisher,
                                      .device = device.get(),
                                      .watch = watch()}));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  sweep_seconds = took.count();
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
