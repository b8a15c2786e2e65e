// The arithmetic of summaries, in double precision.
#include "bench/summary.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace nibble {

double Summary::at(double percent) const {
  for (const Percentile& each : percentiles)
    if (each.percent == percent) return each.value;
  CHECK(false, "percentile ", percent, " was not asked for");
  return 0.0;
}

double percentile_of(std::span<const double> sorted, double percent) {
  CHECK(!sorted.empty() && percent >= 0.0 && percent <= 100.0, "percentile ", percent, " of ",
        sorted.size(), " values");
  const double place = percent / 100.0 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(std::floor(place));
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double part = place - static_cast<double>(below);
  return sorted[below] + (sorted[above] - sorted[below]) * part;
}

Summary summarize(std::vector<double> values, std::span<const double> percents) {
  Summary summary{.count = values.size()};
  for (const double percent : percents) summary.percentiles.push_back({percent, 0.0});
  if (values.empty()) return summary;
  std::ranges::sort(values);
  const auto count = static_cast<double>(values.size());
  summary.mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0.0;
  for (const double value : values) squares += (value - summary.mean) * (value - summary.mean);
  summary.deviation = std::sqrt(squares / count);
  summary.least = values.front();
  summary.most = values.back();
  summary.median = percentile_of(values, 50.0);
  for (Percentile& each : summary.percentiles) each.value = percentile_of(values, each.percent);
  return summary;
}

}  // namespace nibble
