// The walk: the parts, what is tapped in each, what outlives them.
#include <algorithm>
#include <chrono>

#include "quantize/calibrate/calibration_state.h"
#include "quantize/calibrate/embedded_samples.h"

namespace nibble {
// ---- running ----

int64_t Calibration::State::total_rows() const {
  const int64_t sweep = options.fisher ? fisher_rows(data.tokens(), config) : 0;
  return data.tokens() * static_cast<int64_t>(parts.size()) + sweep;
}

Result<void> Calibration::State::begin_runner() {
  if (options.runner == nullptr)
    options.runner = make_host_layer_runner(weights, config, options.make_backend);
  const CalibrationMemory needed = memory();
  LayerSamples samples = TRY(embedded_samples(checkpoint, weights, config, data));
  samples.layer_bytes = needed.layer_bytes;
  samples.moment_bytes = part_bytes();
  samples.weight_bytes = needed.weight_bytes;
  if (options.gptq == GptqPlace::runner)
    for (const Part& part : parts)
      for (const TappedInput& input : part.inputs)
        if (input.kind == SecondMoment::full)
          samples.gptq_cols = std::max(samples.gptq_cols, input.cols);
  return options.runner->start(std::move(samples));
}

LayerWatch Calibration::State::watch() {
  return {.check = options.check, .rows_done = [this](int64_t rows) {
            rows_done += rows;
            if (options.progress) options.progress(rows_done, total_rows());
          }};
}

Taps Calibration::State::taps_of(size_t index) const {
  const Part& part = parts[index];
  Taps wanted;
  for (const TappedInput& input : part.inputs)
    wanted.want(input.module, input.cols, input.kind, weights_of(input), moment_place(input.kind));
  // The first part of a layer also takes the largest inputs of the others, as they are shared.
  if (index == 0 || parts[index - 1].layer != part.layer)
    for (size_t i = index + 1; i < parts.size() && parts[i].layer == part.layer; ++i)
      for (const TappedInput& input : parts[i].inputs)
        wanted.want(input.module, input.cols, SecondMoment::none);
  return wanted;
}

Result<void> Calibration::State::run_part(const Part& part, Taps& into) {
  const auto begin = std::chrono::steady_clock::now();
  if (part.layer < config.layer_count()) {
    TRY(options.runner->run_layer(
        part.layer, part.last ? HiddenStates::move_on : HiddenStates::stay, into, watch()));
  } else if (!part.inputs.empty()) {
    TRY(options.runner->run_head(*into.find(part.inputs.front().module), watch()));
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  seconds += took.count();
  return {};
}

/// `taps` becomes what the part saw.
Result<void> Calibration::State::take_part(int index) {
  current = index;
  if (next_run.valid()) {
    CHECK(next == index, "part ", index, " after ", next - 1);
    Result<void> done = next_run.get();
    taps = std::move(next_taps);
    return done;
  }
  TRY(weigh_tokens());
  taps = taps_of(static_cast<size_t>(index));
  return run_part(parts[static_cast<size_t>(index)], taps);
}

void Calibration::State::start_next() {
  next = current + 1;
  if (!options.runner->leaves_cores_free() || next >= static_cast<int>(parts.size())) return;
  next_run = std::async(std::launch::async, [this]() -> Result<void> {
    TRY(weigh_tokens());
    next_taps = taps_of(static_cast<size_t>(next));
    return run_part(parts[static_cast<size_t>(next)], next_taps);
  });
}

/// Takes down what outlives the part; refuses inputs that are mostly no numbers.
Result<void> Calibration::State::finish(const Part& part) {
  for (const auto& [module, seen] : taps.all()) {
    float& most = largest[shared_key.at(module)];
    most = std::max(most, seen.amax);
  }
  for (const TappedInput& input : part.inputs) {
    const InputStatistics& seen = *taps.find(input.module);
    bad += seen.bad_tokens;
    if (!input.expert.empty()) experts.push_back({input.expert, seen.tokens});
    if (seen.bad_tokens * 10 > seen.tokens + seen.bad_tokens)
      return make_error(
          ErrorCode::corrupt,
          {.what = concat("the input of ", input.module),
           .expected = "finite numbers",
           .found = concat("NaN or infinity in ", seen.bad_tokens, " of ",
                           seen.tokens + seen.bad_tokens, " tokens"),
           .advice = "`nibble verify` looks for broken weights; or calibrate on other data"});
  }
  return {};
}

// ---- the outside ----

Calibration::Calibration(std::unique_ptr<State> state) : state_(std::move(state)) {}
Calibration::~Calibration() = default;
Calibration::Calibration(Calibration&&) noexcept = default;

Result<Calibration> Calibration::start(const Checkpoint& checkpoint, const Weights& weights,
                                       const ModelConfig& config, const CalibrationData& data,
                                       CalibrationOptions options) {
  CHECK(!data.samples.empty() && (options.runner != nullptr || options.make_backend),
        "nothing to calibrate with");
  auto state = std::make_unique<State>(State{.checkpoint = checkpoint,
                                             .weights = weights,
                                             .config = config,
                                             .data = data,
                                             .options = std::move(options)});
  TRY(state->fit());
  TRY(state->begin_runner());
  TRY(state->check_weighing());
  return Calibration(std::move(state));
}

int Calibration::parts() const { return static_cast<int>(state_->parts.size()); }

int Calibration::part_of(const std::string& module) const {
  const auto leader = state_->leader.find(module);
  if (leader == state_->leader.end()) return -1;
  const auto part = state_->part_index.find(leader->second);
  return part == state_->part_index.end() ? -1 : part->second;
}

void Calibration::begin() {
  CHECK(state_->current < 0 && !state_->next_run.valid(), "begun twice");
  state_->start_next();
}

Result<void> Calibration::run(int index) {
  TRY(state_->take_part(index));
  TRY(state_->finish(state_->parts[static_cast<size_t>(index)]));
  state_->start_next();
  return {};
}

const InputStatistics* Calibration::find(const std::string& module) const {
  const auto leader = state_->leader.find(module);
  if (leader == state_->leader.end() || part_of(module) != state_->current) return nullptr;
  return state_->taps.find(leader->second);
}

float Calibration::amax(const std::string& module) const {
  const auto leader = state_->leader.find(module);
  if (leader == state_->leader.end()) return 0.0F;
  const auto key = state_->shared_key.find(leader->second);
  if (key == state_->shared_key.end()) return 0.0F;
  const auto found = state_->largest.find(key->second);
  return found == state_->largest.end() ? 0.0F : found->second;
}

CalibrationMemory Calibration::memory() const { return state_->memory(); }
const LayerRunner& Calibration::runner() const { return *state_->options.runner; }
GptqDevice* Calibration::gptq_device() const {
  return state_->options.gptq == GptqPlace::runner ? state_->options.runner->gptq_device()
                                                   : nullptr;
}

double Calibration::sweep_seconds() const { return state_->sweep_seconds; }

const FisherSeconds& Calibration::sweep_parts() const { return state_->sweep_parts; }

double Calibration::seconds() const {
  CHECK(!state_->next_run.valid(), "a part is running");
  return state_->seconds;
}

const std::vector<ExpertTokens>& Calibration::expert_tokens() const { return state_->experts; }
int64_t Calibration::bad_tokens() const { return state_->bad; }

Json Calibration::json() const {
  Json out = state_->data.json();
  out.set("backend", std::string(state_->options.runner->name()));
  state_->add_weighing(out);
  out.set("inputs_with_nan_or_infinity", state_->bad);
  Json few{Json::Array{}};
  std::map<std::string, std::pair<int64_t, int64_t>> layers;  // least and most tokens
  for (const ExpertTokens& expert : state_->experts) {
    const std::string layer = expert.module.substr(0, expert.module.rfind('.'));
    auto& [least, most] = layers.try_emplace(layer, expert.tokens, expert.tokens).first->second;
    least = std::min(least, expert.tokens);
    most = std::max(most, expert.tokens);
    if (expert.tokens >= state_->options.tokens_few) continue;
    Json one;
    one.set("expert", expert.module);
    one.set("tokens", expert.tokens);
    few.push_back(std::move(one));
  }
  if (layers.empty()) return out;
  Json tokens;
  for (const auto& [layer, range] : layers)
    tokens.set(layer, Json(Json::Array{Json(range.first), Json(range.second)}));
  out.set("tokens_of_experts_least_and_most", std::move(tokens));
  out.set(concat("experts_below_", state_->options.tokens_few, "_tokens"), std::move(few));
  return out;
}

}  // namespace nibble
