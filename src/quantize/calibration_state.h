// Inside of calibration.h: what a run knows. Planning is calibration_plan.cc, running
// calibration.cc.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "quantize/calibration.h"

namespace nibble {

inline constexpr int64_t kPassRows = 512;

/// An input that several linears share; named after the first.
struct TappedInput {
  std::string module;
  int64_t cols = 0;
  SecondMoment kind = SecondMoment::none;
  std::string expert;  // "…mlp.experts.3", for the tokens routed to it; else empty
  std::string shared;  // linears with the same key have one largest input: a layer's experts
};

struct Part {
  int layer = 0;      // config.layer_count(): the head
  bool last = false;  // of its layer: hidden states move on
  std::vector<TappedInput> inputs;
};

/// A stretch of one sample in one pass.
struct Piece {
  size_t sample = 0;
  int64_t begin = 0;
  int64_t count = 0;
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
  std::vector<uint16_t> hidden = {};               // [tokens, hidden], BF16
  std::vector<int64_t> first_row = {};             // of each sample
  std::unique_ptr<Backend> backend = {};
  int backend_layer = -1;
  ModelConfig one = {};  // the config of that layer
  PoolSizes pools = {};
  Taps taps = {};
  std::map<std::string, float> largest = {};  // by TappedInput::shared
  std::map<std::string, std::string> shared_key = {};
  std::vector<ExpertTokens> experts = {};
  int64_t bad = 0;
  int64_t rows_done = 0;
  int current = -1;

  void plan();
  Result<void> fit();
  int64_t layer_bytes(int layer) const;
  CalibrationMemory memory() const;
  std::vector<TappedInput> layer_inputs(int layer);
  void tap_mlp(const MlpSources& mlp, const std::string& shared, std::vector<TappedInput>& out);
  TappedInput tapped(std::initializer_list<const LinearSource*> linears);
  Result<void> embed();
  Result<void> open_layer(int layer);
  Result<void> run_layer(const Part& part);
  Result<void> run_pass(const std::vector<Piece>& pieces, const Part& part);
  Result<void> run_head(const Part& part);
  Result<void> finish(const Part& part);
  std::vector<std::vector<Piece>> passes() const;
  int64_t total_rows() const;
};

}  // namespace nibble
