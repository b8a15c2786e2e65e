// Calibration: the model run layer by layer over given samples, to learn what the inputs of its
// linears are like. One layer is loaded at a time; the hidden states of all tokens are kept in
// BF16. Sums that do not fit beside them are gathered in several parts of a layer, each its own
// pass over it. The states are those of the unquantized model, without any KV-cache quantization:
// nothing that is written depends on the order of work.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/layer_runner.h"
#include "model/taps.h"
#include "quantize/calibrate/calibration_data.h"
#include "quantize/calibrate/host_layer_runner.h"
#include "quantize/gradient/fisher_weights.h"

namespace nibble {

/// runner: the layer runner's device rounds by GPTQ, if it has room, and keeps the sums for that.
enum class GptqPlace : uint8_t { cpu, runner };

struct CalibrationOptions {
  SecondMoment moment = SecondMoment::none;  // what the rounding algorithm needs of each linear
  /// Says which linears need it; of the others only the largest input is observed.
  std::function<bool(const std::string& module)> wants_moment = {};
  /// With it tokens count by what errors at them cost, and each linear has sums of its own;
  /// nothing: all tokens count alike. `states_bytes_max` is lowered to what memory allows.
  std::optional<FisherOptions> fisher = {};
  /// Layers run here; without one, on the backends that make_backend gives.
  std::shared_ptr<LayerRunner> runner = {};
  BackendFactory make_backend = {};
  GptqPlace gptq = GptqPlace::cpu;
  /// An expert that got fewer tokens than this is listed by json() as having few.
  int64_t tokens_few = 256;
  /// Hidden states, sums and a layer; more is refused. 0: no limit.
  int64_t memory_bytes_max = 0;
  /// For sums; one part of a layer holds at most so much (or one input's, if that is more).
  int64_t moment_bytes_max = int64_t{2} << 30;
  /// Asked before each pass; an error stops the work.
  std::function<Result<void>()> check = {};
  /// Rows through layers so far, and in all.
  std::function<void(int64_t done, int64_t total)> progress = {};
};

/// The most memory that a run takes, in addition to the backend of one layer.
struct CalibrationMemory {
  int64_t hidden_bytes = 0;  // tokens x hidden in BF16
  int64_t moment_bytes = 0;  // of the largest part; of two if the next runs meanwhile; 0 if kept
  int64_t layer_bytes = 0;   // of the largest layer, as stored
  int64_t sweep_bytes = 0;   // before the first part: streams between layers, a layer in F32
  int64_t weight_bytes = 0;  // of tokens, kept from then on
  int64_t total() const {
    return hidden_bytes + weight_bytes + std::max(moment_bytes + layer_bytes, sweep_bytes);
  }
};

/// The tokens that one expert of a layer got.
struct ExpertTokens {
  std::string module;  // "model.layers.3.mlp.experts.17"
  int64_t tokens = 0;
};

class Calibration {
 public:
  /// Reads the embeddings of the samples. Everything given must outlive the result. Errors:
  /// unsupported (a backend that does not calibrate, or not with weights of tokens; an id beyond
  /// the vocabulary), no_memory, io.
  static Result<Calibration> start(const Checkpoint& checkpoint, const Weights& weights,
                                   const ModelConfig& config, const CalibrationData& data,
                                   CalibrationOptions options);
  ~Calibration();
  Calibration(Calibration&&) noexcept;

  /// The parts in the order in which they must run: layer after layer, the head last.
  int parts() const;
  /// The part that knows the input of a linear, or -1: never looked at (an embedding).
  int part_of(const std::string& module) const;
  /// Before the first run(): its work begins where the runner leaves the cores free, beside what
  /// needs no data. Without this call it begins then.
  void begin();
  /// Runs part `index`, the next one, and before the first the sweep for the weights of tokens, if
  /// they are wanted. find() then knows its linears, until the next run. A runner
  /// that leaves the cores free begins the part after it at once. Errors:
  /// corrupt when more than a tenth of a linear's inputs are no numbers; those of the backend.
  Result<void> run(int index);

  /// Statistics of the last part that ran. Linears that share an input share them; nullptr: the
  /// linear is not of this part.
  const InputStatistics* find(const std::string& module) const;
  /// Largest input seen so far by a linear of a finished part; of an expert's: by any expert of its
  /// layer. Zero when never seen.
  float amax(const std::string& module) const;

  CalibrationMemory memory() const;
  const LayerRunner& runner() const;
  /// Rounds with these statistics by GPTQ; nullptr: the CPU is to.
  GptqDevice* gptq_device() const;
  /// Wall time of the sweep and all parts, after the last one (CHECK).
  double seconds() const;
  /// Wall time of the sweep for weights of tokens; 0 without one.
  double sweep_seconds() const;
  /// Where a device spent that time; zeros without one.
  const FisherSeconds& sweep_parts() const;
  /// Routed tokens, of all layers run so far.
  const std::vector<ExpertTokens>& expert_tokens() const;
  int64_t bad_tokens() const;  // inputs with NaN or infinity, over all linears
  /// The data, and for the report what experts saw: the least of each layer and those with few.
  Json json() const;

 private:
  struct State;
  explicit Calibration(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Global scale of 4-bit activations, multiply direction: the power of two at or above
/// headroom * amax / 2688. Too large costs nothing, too small clips (docs/formats.md). 1 if amax is
/// 0 or not finite.
float nvfp4_input_scale(float amax);
/// Static scale of FP8 activations: the power of two at or above headroom * amax / 448; 1 likewise.
float fp8_input_scale(float amax);
inline constexpr float kNvfp4Headroom = 8.0F;
inline constexpr float kFp8Headroom = 2.0F;

}  // namespace nibble
