// Wilson's formula here; the quantiles of the binomial distribution are Boost.Math's.
#include "eval/confidence.h"

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <cmath>

#include "base/check.h"

namespace nibble {
namespace {

constexpr double kQuantile = 1.959963984540054;  // of the normal distribution at 97.5 %
constexpr double kTail = 0.025;

using Binomial = boost::math::binomial_distribution<double>;

/// The interval of Clopper and Pearson.
Interval exact_interval(int64_t successes, int64_t trials) {
  const auto k = static_cast<double>(successes), n = static_cast<double>(trials);
  return {successes == 0 ? 0.0 : Binomial::find_lower_bound_on_p(n, k, kTail),
          successes == trials ? 1.0 : Binomial::find_upper_bound_on_p(n, k, kTail)};
}

}  // namespace

Interval wilson_interval(int64_t successes, int64_t trials) {
  CHECK(0 <= successes && successes <= trials, successes, " of ", trials);
  if (trials == 0) return {0.0, 1.0};
  const auto n = static_cast<double>(trials);
  const double share = static_cast<double>(successes) / n;
  const double square = kQuantile * kQuantile;
  const double centre = (share + square / (2 * n)) / (1 + square / n);
  const double half =
      kQuantile / (1 + square / n) * std::sqrt(share * (1 - share) / n + square / (4 * n * n));
  return {successes == 0 ? 0.0 : centre - half, successes == trials ? 1.0 : centre + half};
}

PairedDifference paired_difference(const PairedCounts& counts) {
  const int64_t differing = counts.gained + counts.lost;
  CHECK(counts.gained >= 0 && counts.lost >= 0 && differing <= counts.pairs, counts.gained, " + ",
        counts.lost, " of ", counts.pairs);
  if (counts.pairs == 0) return {.interval = {-1.0, 1.0}};
  if (differing == 0) return {};
  const double scale = static_cast<double>(differing) / static_cast<double>(counts.pairs);
  const Interval share = exact_interval(counts.gained, differing);
  const Binomial fair(static_cast<double>(differing), 0.5);
  const auto fewer = static_cast<double>(std::min(counts.gained, counts.lost));
  return {
      .delta = static_cast<double>(counts.gained - counts.lost) / static_cast<double>(counts.pairs),
      .interval = {(2 * share.low - 1) * scale, (2 * share.high - 1) * scale},
      .p_value = std::min(1.0, 2 * boost::math::cdf(fair, fewer))};
}

}  // namespace nibble
