// DraftCosts: how long drafted rows and drafts take, by the number of sequences that generate. Both
// depend on it more than a formula of the rows could tell: what a row adds to a pass of one
// sequence of a mixture of experts is four times what it adds to one of 32. No clock.
//
// The first measurement of each kind counts for nothing, since it may be of weights that no cache
// held yet, or of a recording that was made just then; and none counts as more than two tokens cost
// without drafts, nor as much more than what was known.
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
  double row_ms(int32_t sequences) const { return of(sequences).row.ms; }
  /// Milliseconds of one draft of a model's own layer, which drafts for all sequences at once.
  double draft_ms(int32_t sequences) const { return step_ms(sequences) / std::max(sequences, 1); }

  /// Milliseconds of a step of drafts for so many sequences.
  double step_ms(int32_t sequences) const { return of(sequences).step.ms; }
  /// True if both were measured for so many sequences, or could not be.
  bool known(int32_t sequences) const {
    return of(sequences).row.count > 1 && of(sequences).step.count > 1;
  }

  /// A pass of so many sequences took `more_ms` longer for its drafted rows than the `plain_ms`
  /// that it takes without.
  void observe_rows(int32_t sequences, int32_t rows, double more_ms, double plain_ms) {
    if (rows > 0 && std::isfinite(more_ms))
      of(sequences).row.learn(more_ms / rows, plain_ms / std::max(sequences, 1));
  }
  /// A round of `steps` drafts of each of so many sequences took `ms`.
  void observe_drafts(int32_t sequences, int32_t steps, double ms, double plain_ms) {
    if (steps > 0 && std::isfinite(ms)) of(sequences).step.learn(ms / steps, plain_ms);
  }
  /// Drafted rows ran beside a prompt, so that nobody can tell what they took.
  void miss_rows(int32_t sequences) { ++of(sequences).row.count; }
  /// So many sequences had drafts whose rows seemed too expensive. That is believed a little less
  /// each time, and tried again after a few hundred tokens.
  void forget_rows(int32_t sequences) { of(sequences).row.ms *= kForgotten; }

 private:
  static constexpr double kWeightLeast = 0.2;  // weight of the latest measurement
  static constexpr double kForgotten = 0.998;
  static constexpr double kRowUnknownMs = 0.05;
  static constexpr double kRiseMost = 2.0;    // times what is known, or
  static constexpr double kRiseLeast = 0.25;  // of the unit, whichever is more
  static constexpr double kUnitsMost = 2.0;
  struct Cost {
    double ms = 0.0;
    int64_t count = 0;  // measurements
    /// `unit_ms`: the time of a token, or of a token of every sequence.
    void learn(double measured, double unit_ms) {
      measured = std::clamp(measured, 0.0, kUnitsMost * unit_ms);
      if (count > 1) measured = std::min(measured, std::max(kRiseMost * ms, kRiseLeast * unit_ms));
      const double weight =
          count == 0 ? 0.0 : std::max(1.0 / static_cast<double>(count), kWeightLeast);
      ms += weight * (measured - ms);
      ++count;
    }
  };
  struct Costs {
    Cost row{.ms = kRowUnknownMs};
    Cost step;
  };

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
