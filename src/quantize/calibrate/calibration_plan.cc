// The plan of a calibration: which part of which layer observes what, and the memory that takes.
#include <algorithm>
#include <iterator>

#include "quantize/calibrate/calibration_state.h"

namespace nibble {

bool Calibration::State::wants(const LinearSource& linear) const {
  return linear.present() && options.wants_moment && options.wants_moment(linear.module);
}

SecondMoment Calibration::State::kind_of(const LinearSource& linear) const {
  return wants(linear) && linear.cols % kMomentBlock == 0 ? options.moment : SecondMoment::none;
}

/// Linears with one input: they share its sums, unless each weighs tokens by itself. Those without
/// sums are observed with the first that has some.
void Calibration::State::tap(std::initializer_list<const LinearSource*> linears,
                             std::vector<TappedInput>& out) {
  const LinearSource& first = **linears.begin();
  std::vector<TappedInput> inputs;
  for (const LinearSource* linear : linears)
    if (const SecondMoment kind = kind_of(*linear); kind != SecondMoment::none)
      if (options.fisher || inputs.empty())
        inputs.push_back({.module = options.fisher ? linear->module : first.module,
                          .cols = first.cols,
                          .kind = kind});
  if (inputs.empty()) inputs.push_back({.module = first.module, .cols = first.cols});
  for (const LinearSource* linear : linears) {
    if (!linear->present()) continue;
    const bool own =
        std::ranges::find(inputs, linear->module, &TappedInput::module) != inputs.end();
    leader[linear->module] = own ? linear->module : inputs.front().module;
  }
  for (TappedInput& input : inputs) {
    input.shared = first.module;
    input.with_previous = &input != &inputs.front();
    out.push_back(std::move(input));
  }
}

/// `shared`: of an expert, the key of its layer's experts; else empty.
void Calibration::State::tap_mlp(const MlpSources& mlp, const std::string& shared,
                                 std::vector<TappedInput>& out) {
  const size_t inputs = out.size();
  tap({&mlp.gate, &mlp.up}, out);
  const size_t downs = out.size();
  tap({&mlp.down}, out);
  if (shared.empty()) return;
  out[inputs].expert = mlp.gate.module.substr(0, mlp.gate.module.rfind('.'));
  for (size_t i = inputs; i < out.size(); ++i)
    out[i].shared = shared + (i < downs ? ".gate_proj" : ".down_proj");
}

std::vector<TappedInput> Calibration::State::layer_inputs(int layer) {
  const LayerSources& sources = weights.layers()[static_cast<size_t>(layer)];
  std::vector<TappedInput> out;
  if (config.layers[static_cast<size_t>(layer)] == LayerKind::attention) {
    const AttentionSources& a = sources.attention;
    tap({&a.q, &a.k, &a.v}, out);
    tap({&a.o}, out);
  } else {
    const DeltaNetSources& d = sources.delta_net;
    tap({&d.qkv, &d.z, &d.b, &d.a}, out);
    tap({&d.out}, out);
  }
  if (!config.moe) {
    tap_mlp(sources.dense_mlp, "", out);
    return out;
  }
  const MoeSources& moe = sources.moe;
  if (moe.shared.gate.present()) {
    tap_mlp(moe.shared, "", out);
    for (const LinearSource* linear : {&moe.router, &moe.shared_gate})
      leader[linear->module] = leader.at(moe.shared.gate.module);
  } else {
    tap({&moe.router}, out);
  }
  const std::string shared = concat("layer ", layer, " experts");
  for (const MlpSources& expert : moe.experts) tap_mlp(expert, shared, out);
  return out;
}

void Calibration::State::plan_layer(int layer) {
  Part part{.layer = layer};
  int64_t bytes = 0;
  std::vector<TappedInput> inputs = layer_inputs(layer);
  for (size_t begin = 0, end = 0; begin < inputs.size(); begin = end) {
    int64_t more = 0;
    do {
      more += moment_count(inputs[end].kind, inputs[end].cols) * int64_t{sizeof(double)};
    } while (++end < inputs.size() && inputs[end].with_previous);
    if (!part.inputs.empty() && bytes + more > options.moment_bytes_max) {
      parts.push_back(std::move(part));
      part = {.layer = layer};
      bytes = 0;
    }
    bytes += more;
    std::move(inputs.begin() + static_cast<ptrdiff_t>(begin),
              inputs.begin() + static_cast<ptrdiff_t>(end), std::back_inserter(part.inputs));
  }
  part.last = true;
  parts.push_back(std::move(part));
}

void Calibration::State::plan() {
  parts.clear();
  part_index.clear();
  for (int layer = 0; layer < config.layer_count(); ++layer) plan_layer(layer);
  parts.push_back({.layer = config.layer_count(), .last = true, .inputs = {}});
  if (!config.tied_head) tap({&weights.head()}, parts.back().inputs);
  for (size_t i = 0; i < parts.size(); ++i)
    for (const TappedInput& input : parts[i].inputs) {
      part_index[input.module] = static_cast<int>(i);
      shared_key[input.module] = input.shared;
    }
}

namespace {

int64_t linear_bytes(const Checkpoint& checkpoint, const LinearSource& linear) {
  const TensorEntry* entry = linear.present() ? checkpoint.find(linear.values) : nullptr;
  return entry == nullptr ? 0 : dtype_bytes(entry->dtype, linear.rows * linear.cols);
}

}  // namespace

int64_t Calibration::State::layer_bytes(int layer) const {
  const LayerSources& sources = weights.layers()[static_cast<size_t>(layer)];
  int64_t bytes = 0;
  const auto add = [&](const LinearSource& linear) { bytes += linear_bytes(checkpoint, linear); };
  const auto add_mlp = [&](const MlpSources& mlp) {
    for (const LinearSource* linear : {&mlp.gate, &mlp.up, &mlp.down}) add(*linear);
  };
  const AttentionSources& a = sources.attention;
  const DeltaNetSources& d = sources.delta_net;
  for (const LinearSource* linear : {&a.q, &a.k, &a.v, &a.o, &d.qkv, &d.z, &d.b, &d.a, &d.out})
    add(*linear);
  add_mlp(sources.dense_mlp);
  add_mlp(sources.moe.shared);
  add(sources.moe.router);
  for (const MlpSources& expert : sources.moe.experts) add_mlp(expert);
  return bytes;
}

int64_t Calibration::State::parts_at_once() const {
  return options.runner != nullptr && options.runner->leaves_cores_free() ? 2 : 1;
}

int64_t Calibration::State::part_bytes() const {
  int64_t most = 0;
  for (const Part& part : parts) {
    int64_t bytes = 0;
    for (const TappedInput& input : part.inputs)
      bytes += moment_count(input.kind, input.cols) * int64_t{sizeof(double)};
    most = std::max(most, bytes);
  }
  return most;
}

MomentPlace Calibration::State::moment_place(SecondMoment kind) const {
  const bool kept = kind == SecondMoment::full && options.gptq == GptqPlace::runner &&
                    options.runner != nullptr && options.runner->gptq_device() != nullptr;
  return kept ? MomentPlace::device : MomentPlace::host;
}

CalibrationMemory Calibration::State::memory() const {
  CalibrationMemory memory{.hidden_bytes = data.tokens() * config.hidden * 2};
  if (moment_place(options.moment) == MomentPlace::host)
    memory.moment_bytes = part_bytes() * parts_at_once();
  for (int layer = 0; layer < config.layer_count(); ++layer)
    memory.layer_bytes = std::max(memory.layer_bytes, layer_bytes(layer));
  if (!options.fisher) return memory;
  if (options.runner == nullptr || !options.runner->sweeps()) {
    const int64_t head_bytes = 2 * linear_bytes(checkpoint, weights.head());
    memory.sweep_bytes =
        fisher_state_bytes(data.tokens(), data.longest(), config, *options.fisher) +
        std::max(2 * memory.layer_bytes, head_bytes);
  }
  memory.weight_bytes = data.tokens() * weights_per_token() * int64_t{2 * sizeof(float)};
  return memory;
}

/// Weights that a token has: of each wanted linear that sees it.
int64_t Calibration::State::weights_per_token() const {
  int64_t count = 0;
  for (const LayerSources& layer : weights.layers()) {
    const auto add = [&](const MlpSources& mlp, int64_t times) {
      for (const LinearSource* linear : {&mlp.gate, &mlp.up, &mlp.down})
        if (wants(*linear)) count += times;
    };
    const AttentionSources& a = layer.attention;
    const DeltaNetSources& d = layer.delta_net;
    for (const LinearSource* linear : {&a.q, &a.k, &a.v, &a.o, &d.qkv, &d.z, &d.b, &d.a, &d.out})
      if (wants(*linear)) ++count;
    add(layer.dense_mlp, 1);
    add(layer.moe.shared, 1);
    if (!layer.moe.experts.empty()) add(layer.moe.experts.front(), config.moe->top_k);
  }
  return count + (wants(weights.head()) ? 1 : 0);
}

/// Fewer sums at once, until all fits; refused with the numbers if even that does not do.
Result<void> Calibration::State::fit() {
  plan();
  const int64_t most = options.memory_bytes_max;
  while (most > 0 && memory().total() > most) {
    const CalibrationMemory least = memory();
    if (options.fisher) {
      options.fisher->states_bytes_max =
          fisher_state_bytes(data.tokens(), data.longest(), config, *options.fisher) / 2;
      if (memory().total() < least.total()) continue;
    }
    options.moment_bytes_max = least.moment_bytes / parts_at_once() / 2;
    plan();
    if (memory().moment_bytes < least.moment_bytes) continue;
    return make_error(
        ErrorCode::no_memory,
        {.what = "memory for calibration",
         .expected =
             concat(least.total(), " bytes: hidden states ", least.hidden_bytes, ", sums ",
                    least.moment_bytes, ", a layer ", least.layer_bytes, ", weights of tokens ",
                    least.weight_bytes, ", or before that ", least.sweep_bytes, " to find them"),
         .found = concat(most, " bytes"),
         .advice = "use fewer or shorter samples (--calib-samples, --calib-length)"});
  }
  return {};
}

}  // namespace nibble
