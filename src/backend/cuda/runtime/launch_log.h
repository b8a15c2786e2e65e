// The launches of a pass, as text and bytes. A walk whose launches are skipped fills it, and the
// table of kernels that a server prints reads it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/cuda/runtime/launcher.h"

namespace nibble::cuda {

class LaunchLog {
 public:
  struct Line {
    Step step = Step::embed;
    std::string text;
    int64_t bytes = 0;  // of weights, of all such launches
    int32_t launches = 0;
  };
  /// Launches of one step with the same text become one line.
  void add(Step step, std::string text, int64_t bytes) {
    for (Line& line : lines_)
      if (line.step == step && line.text == text) {
        line.bytes += bytes;
        ++line.launches;
        return;
      }
    lines_.push_back({.step = step, .text = std::move(text), .bytes = bytes, .launches = 1});
  }
  const std::vector<Line>& lines() const { return lines_; }

 private:
  std::vector<Line> lines_;
};

}  // namespace nibble::cuda
