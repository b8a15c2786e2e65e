// The questions of `nibble doctor --receipt`: checks of kernels, and their speed. Present in
// every build; where there is no CUDA toolkit, absent.cc says so.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace nibble {

/// The result of one group of checks (backend/cuda/checks).
struct CheckedPart {
  std::string name;  // "linears of generated tokens"
  std::string ran;   // "native and portable", "emulated"...
  int32_t passed = 0;
  int32_t failed = 0;
  double worst = 0;  // the largest error or number of what differs, of all its checks; NaN stays
  double seconds = 0;
  std::vector<std::string> failures;  // names of the first that failed
};
/// From now on a card that fails does not end the process: what is asked of it then is an error.
void outlive_card();
/// Runs all groups on the first card; `report` is told of each when it is done. Errors: as
/// card_identity; io for a card that fails, of which the last group tells, and nothing more can be
/// asked of it.
Result<void> check_card(const std::function<void(const CheckedPart&)>& report);

/// The limit on the data sheet that a speed is held against.
enum class SpeedLimit : uint8_t { bandwidth, bf16_products, fp8_products, fp4_products, none };

struct CardFigure {
  std::string name;  // "head, NVFP4, 1 row"
  std::string ran;
  SpeedLimit limit = SpeedLimit::none;
  double work = 0;              // bytes or FLOPs of a launch
  std::vector<double> seconds;  // of a launch, one measurement after the other
};
/// Measures memory and products like those of generated tokens and of prompts in turn, until
/// `seconds` have passed, each once at least. Errors: as card_identity; no_memory; io for a card
/// that fails.
Result<std::vector<CardFigure>> time_card(double seconds);

}  // namespace nibble
