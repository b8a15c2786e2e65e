// LayerRunner: a model run layer by layer over fixed samples, the hidden states kept where they are
// computed and one layer's weights in memory at a time. What calibration asks of the hardware;
// serving asks a Backend.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/devices/gptq_device.h"
#include "model/devices/gradient_device.h"
#include "model/taps.h"

namespace nibble {

/// The samples, and what a runner plans its memory with.
struct LayerSamples {
  std::vector<int64_t> lengths;  // tokens of each sample, each at least 1
  std::vector<uint16_t> hidden;  // BF16 [tokens, D]: the embeddings, sample after sample
  int64_t layer_bytes = 0;       // weights of the largest layer, as stored
  int64_t moment_bytes = 0;      // bytes of the taps of one run, at most
  int64_t weight_bytes = 0;      // weights of tokens of one run, at most; 0: all count alike
  int64_t gptq_cols = 0;         // columns of the widest input that GPTQ rounds for; 0: none
};

/// move_on: the output of a layer becomes the input of the next. stay: the layer runs again.
enum class HiddenStates : uint8_t { stay, move_on };

/// Asked before each pass, told after it.
struct LayerWatch {
  std::function<Result<void>()> check = {};  // an error stops the work
  std::function<void(int64_t rows)> rows_done = {};
};

/// The time that each part took so far.
struct LayerSeconds {
  double weights = 0;  // waiting for them
  double passes = 0;
  double sums = 0;  // bringing them to the host
};

class LayerRunner {
 public:
  virtual ~LayerRunner() = default;
  /// "cpu" or "cuda": another name gives other sums, in the last digits.
  virtual std::string_view name() const = 0;
  /// One line for people; after start() with the memory it took.
  virtual std::string description() const = 0;
  /// Once, before anything is run. Errors: no_memory with the numbers, unsupported shapes.
  virtual Result<void> start(LayerSamples samples) = 0;
  /// All samples through a layer; adds what their inputs are to `taps`, which name linears of this
  /// layer. Layers come in order, a layer again only while its hidden states stay. Errors: those
  /// of reading weights and of the watch.
  virtual Result<void> run_layer(int layer, HiddenStates hidden, Taps& taps,
                                 const LayerWatch& watch) = 0;
  /// After the last layer: adds the final norm of all hidden states, the head's input.
  virtual Result<void> run_head(InputStatistics& head, const LayerWatch& watch) = 0;
  virtual LayerSeconds seconds() const { return {}; }
  /// True if it heeds the weights of taps (InputStatistics::weights).
  virtual bool weighs_tokens() const { return false; }
  /// Before start(): the bytes that sums of a part may well have where they are made. 0: unknown.
  virtual int64_t moment_room_bytes() const { return 0; }
  /// Does GPTQ of inputs of up to `gptq_cols` columns, while the runner runs; nullptr: it does not.
  /// After start(), until the runner ends.
  virtual GptqDevice* gptq_device() { return nullptr; }
  /// True if gradient_device() gives one.
  virtual bool sweeps() const { return false; }
  /// The backward sweep where the runner runs, after start() and before the first layer; nullptr:
  /// it has none. It knows the embeddings of start(), and must end before the runner runs. Errors:
  /// no_memory with the numbers; unsupported.
  virtual Result<std::unique_ptr<GradientDevice>> gradient_device(const GradientNeeds&) {
    return std::unique_ptr<GradientDevice>();
  }
  /// True if the host's cores are free for other work while it runs.
  virtual bool leaves_cores_free() const { return false; }
};

}  // namespace nibble
