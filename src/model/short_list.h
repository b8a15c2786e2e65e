// ShortList: what sampling usually needs of a row of logits, so that the row itself may stay where
// it was computed. Not a sampler: engine/sampler decides from it, and says where it cannot.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "model/batch.h"

namespace nibble {

/// Masses are sums of exp((logit - logits[0]) / temperature) over sampleable tokens, with the
/// temperature of the row's RowDraw; each is off by at most mass_error() of itself, but `before` by
/// that of `total`. They mean nothing if logits[0] is not finite. "Better": the larger logit, the
/// lower id among equals.
struct ShortList {
  std::span<const int32_t> tokens;  // the best sampleable ones, best first; at least one if any is
  std::span<const float> logits;    // theirs
  bool all = false;                 // there is no other sampleable token
  bool sound = true;   // every logit of the row is a number below infinity; else the rest is noise
  float rest = 0.0F;   // mass of the tokens not listed
  float total = 0.0F;  // mass of all
  /// About where RowDraw::u falls in the cumulative distribution over ascending ids: the logits of
  /// the tokens from drawn_begin on, and the mass of those below. May be empty.
  int32_t drawn_begin = 0;
  std::span<const float> drawn;
  float before = 0.0F;
};

/// Bound on the error of a mass that is computed in F32 with four roundings before each
/// exponential, two approximate exponentials (2^-22) and twenty roundings of the sum: a weight w is
/// off by w |ln w| 4 2^-24, and over n weights of sum s the sum of w |ln w| is at most
/// s (ln n - ln s), by the entropy's bound; n up to 2^20, and twice all that.
inline double mass_error(double mass) {
  constexpr double kTiny = 1e-30;  // what vanishes below F32's smallest numbers
  return 5e-7 * mass * (16.0 - std::log(std::min(std::max(mass, kTiny), 1.0))) + kTiny;
}

/// A ShortList that owns its numbers, made from a whole row: the reference of those that backends
/// make on their devices.
struct OwnedShortList {
  /// `count`: how many tokens it lists at most; `group`: how many logits of the draw it shows, a
  /// run that begins at a multiple of it. `sampleable` as Backend::set_sampleable.
  static OwnedShortList of(std::span<const float> row, std::span<const uint32_t> sampleable,
                           const RowDraw& draw, int32_t count, int32_t group);
  /// Moves the masses by this share of what they may be off by, for tests.
  void perturb(double share);
  ShortList view() const {
    ShortList list = numbers;
    list.tokens = tokens;
    list.logits = logits;
    list.drawn = drawn;
    return list;
  }

  std::vector<int32_t> tokens;
  std::vector<float> logits;
  std::vector<float> drawn;
  ShortList numbers;  // its spans unused
};

}  // namespace nibble
