// Confidence intervals of counts: the share of right answers of one model, and the difference of
// two models over the same questions. Arithmetic only, at 95 %.
#pragma once

#include <cstdint>

namespace nibble {

/// Bounds of a share, 0 to 1, or of a difference of shares, -1 to 1.
struct Interval {
  double low = 0.0;
  double high = 0.0;
};

/// Wilson's score interval of `successes` in `trials` (E. B. Wilson, 1927); 0 to 1 of no trials.
Interval wilson_interval(int64_t successes, int64_t trials);

/// Questions that two models answered. Pairs on which both are right, or both wrong, are the rest.
struct PairedCounts {
  int64_t pairs = 0;
  int64_t gained = 0;  // the second alone is right
  int64_t lost = 0;    // the first alone is right
};

struct PairedDifference {
  double delta = 0.0;    // share of the second less that of the first
  Interval interval;     // holds 0 exactly when p_value >= 0.05
  double p_value = 1.0;  // McNemar's exact test, two-sided

  /// True if the interval leaves out 0.
  bool shown() const { return interval.low > 0.0 || interval.high < 0.0; }
};

/// Compares over pairs. With n = gained + lost pairs that differ, the interval is that of Clopper
/// and Pearson for gained / n, taken as a difference: (2 share - 1) n / pairs.
PairedDifference paired_difference(const PairedCounts& counts);

}  // namespace nibble
