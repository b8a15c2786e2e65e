// Inside of calibration.h: what a run knows. Planning is calibration_plan.cc, running
// calibration.cc.
#pragma once

#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "quantize/calibrate/calibration.h"

namespace nibble {

/// An input that several linears share, named after the first; or, with weights of tokens, that of
/// one linear.
struct TappedInput {
  std::string module;
  int64_t cols = 0;
  SecondMoment kind = SecondMoment::none;
  std::string expert;  // "…mlp.experts.3", for the tokens routed to it; else empty
  /// In the part of the one before: linears with the same input are rounded together.
  bool with_previous = false;
  std::string shared;  // linears with the same key have one largest input: a layer's experts
};

struct Part {
  int layer = 0;      // config.layer_count(): the head
  bool last = false;  // of its layer: hidden states move on
  std::vector<TappedInput> inputs;
};

struct Calibration::State {
  const Checkpoint& checkpoint;
  const Weights& weights;
  const ModelConfig& config;
  const CalibrationData& data;
  CalibrationOptions options;

  std::vector<Part> parts = {};
  std::map<std::string, std::string> leader = {};  // linear -> the input it shares
  std::map<std::string, int> part_index = {};      // input -> part
  std::optional<FisherWeights> fisher = {};        // once the sweep is done
  Taps taps = {};                                  // of the part run last
  std::map<std::string, float> largest = {};       // by TappedInput::shared
  std::map<std::string, std::string> shared_key = {};
  std::vector<ExpertTokens> experts = {};
  int64_t bad = 0;
  int64_t rows_done = 0;
  double seconds = 0;
  double sweep_seconds = 0;  // of those
  FisherSeconds sweep_parts;
  int current = -1;
  // The part after it, if the runner leaves the cores free: it runs while this one's is rounded.
  Taps next_taps = {};
  int next = -1;
  std::future<Result<void>> next_run = {};

  void plan();
  void plan_layer(int layer);
  Result<void> fit();
  int64_t layer_bytes(int layer) const;
  CalibrationMemory memory() const;
  std::vector<TappedInput> layer_inputs(int layer);
  void tap_mlp(const MlpSources& mlp, const std::string& shared, std::vector<TappedInput>& out);
  void tap(std::initializer_list<const LinearSource*> linears, std::vector<TappedInput>& out);
  bool wants(const LinearSource& linear) const;
  SecondMoment kind_of(const LinearSource& linear) const;
  int64_t weights_per_token() const;
  const TokenWeights* weights_of(const TappedInput& input) const;
  Result<void> weigh_tokens();
  Result<void> check_weighing() const;
  void add_weighing(Json& out) const;
  Result<void> begin_runner();
  LayerWatch watch();
  Taps taps_of(size_t index) const;
  Result<void> run_part(const Part& part, Taps& into);
  Result<void> take_part(int index);
  void start_next();
  /// Parts whose sums are in memory at a time.
  int64_t parts_at_once() const;
  /// Bytes of the sums of the largest part, wherever they are.
  int64_t part_bytes() const;
  /// The place of sums of all products: the device that rounds with them, once it has begun.
  MomentPlace moment_place(SecondMoment kind) const;
  Result<void> finish(const Part& part);
  int64_t total_rows() const;
};

}  // namespace nibble
