// The launches of a pass, as text and bytes. A walk whose launches are skipped fills it, and the
// table of kernels that a server prints reads it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cuda/runtime/launcher.h"

namespace nibble::cuda {

/// The bytes of device memory that a launch moves, beside its activations.
struct LaunchBytes {
  int64_t weights = 0;    // read
  int64_t states = 0;     // recurrent states, read and written
  int64_t kv_tokens = 0;  // read of the KV cache for each token of each row's history

  LaunchBytes& operator+=(const LaunchBytes& more) {
    weights += more.weights;
    states += more.states;
    kv_tokens += more.kv_tokens;
    return *this;
  }
};

class LaunchLog {
 public:
  struct Line {
    Step step = Step::embed;
    std::string text;
    LaunchBytes bytes;  // bytes of all these launches
    int32_t launches = 0;
  };
  /// Launches of one step with the same text become one line.
  void add(Step step, std::string text, const LaunchBytes& bytes) {
    for (Line& line : lines_)
      if (line.step == step && line.text == text) {
        line.bytes += bytes;
        ++line.launches;
        return;
      }
    lines_.push_back({.step = step, .text = std::move(text), .bytes = bytes, .launches = 1});
  }
  const std::vector<Line>& lines() const { return lines_; }
  /// Returns a line for each, below one that begins with `title` and has the bytes of all.
  std::string table(std::string_view title) const;

 private:
  std::vector<Line> lines_;
};

/// Adds a line to the launcher's log, if it has one.
template <typename Plan>
void log_launch(const Launcher& launcher, const Plan& plan, const LaunchBytes& bytes) {
  if (launcher.log != nullptr) launcher.log->add(launcher.step, plan.text(), bytes);
}

}  // namespace nibble::cuda
