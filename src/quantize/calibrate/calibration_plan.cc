// The plan of a calibration: which part of which layer observes what, and the memory that takes.
#include <algorithm>

#include "quantize/calibrate/calibration_state.h"

namespace nibble {

TappedInput Calibration::State::tapped(std::initializer_list<const LinearSource*> linears) {
  const LinearSource& first = **linears.begin();
  TappedInput input{.module = first.module, .cols = first.cols};
  for (const LinearSource* linear : linears) {
    if (!linear->present()) continue;
    leader[linear->module] = first.module;
    if (options.wants_moment && options.wants_moment(linear->module)) input.kind = options.moment;
  }
  if (input.cols % kMomentBlock != 0) input.kind = SecondMoment::none;
  input.shared = first.module;
  return input;
}

void Calibration::State::tap_mlp(const MlpSources& mlp, const std::string& shared,
                                 std::vector<TappedInput>& out) {
  out.push_back(tapped({&mlp.gate, &mlp.up}));
  out.push_back(tapped({&mlp.down}));
  if (shared.empty()) return;
  const std::string expert = mlp.gate.module.substr(0, mlp.gate.module.rfind('.'));
  out[out.size() - 2].expert = expert;
  out[out.size() - 2].shared = shared + ".gate_proj";
  out[out.size() - 1].shared = shared + ".down_proj";
}

std::vector<TappedInput> Calibration::State::layer_inputs(int layer) {
  const LayerSources& sources = weights.layers()[static_cast<size_t>(layer)];
  std::vector<TappedInput> out;
  if (config.layers[static_cast<size_t>(layer)] == LayerKind::attention) {
    const AttentionSources& a = sources.attention;
    out.push_back(tapped({&a.q, &a.k, &a.v}));
    out.push_back(tapped({&a.o}));
  } else {
    const DeltaNetSources& d = sources.delta_net;
    out.push_back(tapped({&d.qkv, &d.z, &d.b, &d.a}));
    out.push_back(tapped({&d.out}));
  }
  if (!config.moe) {
    tap_mlp(sources.dense_mlp, "", out);
    return out;
  }
  const MoeSources& moe = sources.moe;
  if (moe.shared.gate.present()) {
    tap_mlp(moe.shared, "", out);
    for (const LinearSource* linear : {&moe.router, &moe.shared_gate})
      leader[linear->module] = moe.shared.gate.module;
  } else {
    out.push_back(tapped({&moe.router}));
  }
  const std::string shared = concat("layer ", layer, " experts");
  for (const MlpSources& expert : moe.experts) tap_mlp(expert, shared, out);
  return out;
}

void Calibration::State::plan() {
  parts.clear();
  part_index.clear();
  for (int layer = 0; layer < config.layer_count(); ++layer) {
    Part part{.layer = layer};
    int64_t bytes = 0;
    for (TappedInput& input : layer_inputs(layer)) {
      const int64_t more = moment_count(input.kind, input.cols) * int64_t{sizeof(double)};
      if (!part.inputs.empty() && bytes + more > options.moment_bytes_max) {
        parts.push_back(std::move(part));
        part = {.layer = layer};
        bytes = 0;
      }
      bytes += more;
      part.inputs.push_back(std::move(input));
    }
    part.last = true;
    parts.push_back(std::move(part));
  }
  parts.push_back({.layer = config.layer_count(), .last = true, .inputs = {}});
  if (!config.tied_head) parts.back().inputs.push_back(tapped({&weights.head()}));
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

CalibrationMemory Calibration::State::memory() const {
  CalibrationMemory memory{.hidden_bytes = data.tokens() * config.hidden * 2};
  for (const Part& part : parts) {
    int64_t bytes = 0;
    for (const TappedInput& input : part.inputs)
      bytes += moment_count(input.kind, input.cols) * int64_t{sizeof(double)};
    memory.moment_bytes = std::max(memory.moment_bytes, bytes * parts_at_once());
  }
  for (int layer = 0; layer < config.layer_count(); ++layer)
    memory.layer_bytes = std::max(memory.layer_bytes, layer_bytes(layer));
  return memory;
}

/// Fewer sums at once, until all fits; refused with the numbers if even that does not do.
Result<void> Calibration::State::fit() {
  plan();
  const int64_t most = options.memory_bytes_max;
  while (most > 0 && memory().total() > most) {
    const CalibrationMemory least = memory();
    options.moment_bytes_max = least.moment_bytes / parts_at_once() / 2;
    plan();
    if (memory().moment_bytes < least.moment_bytes) continue;
    return make_error(
        ErrorCode::no_memory,
        {.what = "memory for calibration",
         .expected = concat(least.total(), " bytes: hidden states ", least.hidden_bytes, ", sums ",
                            least.moment_bytes, ", a layer ", least.layer_bytes),
         .found = concat(most, " bytes"),
         .advice = "use fewer or shorter samples (--calib-samples, --calib-length)"});
  }
  return {};
}

}  // namespace nibble
