// DraftCosts: how long drafted rows and drafts take, by the number of sequences that generate. Both
// depend on it more than a formula of the rows could tell: what a row adds to a pass of one
// sequence of a mixture of experts is four times what it adds to one of 32. No clock.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace nibble {

class DraftCosts {
 public:
  /// Milliseconds that a drafted row adds to a pass of so many sequences. Little enough to be tried
  /// where it was not measured yet.
  double row_ms(int32_t sequences) const { return of(sequences).row_ms; }
  /// Milliseconds of one draft of a model's own layer, which drafts for all sequences at once.
  double draft_ms(int32_t sequences) const {
    return of(sequences).step_ms / std::max(sequences, 1);
  }

  /// A pass of so many sequences took `more_ms` longer for its drafted rows.
  void observe_rows(int32_t sequences, int32_t rows, double more_ms) {
    if (rows > 0 && std::isfinite(more_ms))
      learn(of(sequences).row_ms, std::max(more_ms, 0.0) / rows);
  }
  /// A round of `steps` drafts of each of so many sequences took `ms`.
  void observe_drafts(int32_t sequences, int32_t steps, double ms) {
    if (steps > 0 && std::isfinite(ms)) learn(of(sequences).step_ms, std::max(ms, 0.0) / steps);
  }
  /// Nothing was drafted for so many sequences. What seems too expensive is believed a little less
  /// each time, and tried again after a few hundred tokens: a first measurement may have been of
  /// weights that no cache held yet.
  void forget(int32_t sequences) {
    Costs& costs = of(sequences);
    costs.row_ms *= kForgotten;
    costs.step_ms *= kForgotten;
  }

 private:
  static constexpr double kDecay = 0.8;  // weight of earlier measurements
  static constexpr double kForgotten = 0.998;
  static constexpr double kRowUnknownMs = 0.05;
  struct Costs {
    double row_ms = kRowUnknownMs;
    double step_ms = 0.0;
  };

  static void learn(double& known, double measured) {
    known = kDecay * known + (1.0 - kDecay) * measured;
  }
  static size_t place(int32_t sequences) {
    const auto width = std::bit_width(static_cast<uint32_t>(std::max(sequences, 1)));
    return std::min(static_cast<size_t>(width) - 1, kSizes - 1);
  }
  Costs& of(int32_t sequences) { return by_size_[place(sequences)]; }
  const Costs& of(int32_t sequences) const { return by_size_[place(sequences)]; }

  static constexpr size_t kSizes = 12;  // 1, 2 to 3, 4 to 7, ... sequences
  std::array<Costs, kSizes> by_size_;
};

}  // namespace nibble
