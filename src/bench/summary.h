// A set of measured values in a few numbers: mean, deviation and percentiles, as numpy defines
// them. It knows no units.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace nibble {

struct Percentile {
  double percent = 50.0;  // 0 to 100
  double value = 0.0;
};

struct Summary {
  size_t count = 0;  // with none, every value is 0
  double mean = 0.0;
  double median = 0.0;
  double deviation = 0.0;  // of the population: numpy.std with its default of ddof 0
  double least = 0.0;
  double most = 0.0;
  std::vector<Percentile> percentiles;

  /// One of the percentiles that were asked for; CHECKs that it was.
  double at(double percent) const;
};

/// The value below which `percent` of the values lie, interpolated between the two nearest ones
/// (numpy.percentile with its default method "linear"). `sorted` ascends and is not empty.
double percentile_of(std::span<const double> sorted, double percent);

/// `percents`: each from 0 to 100.
Summary summarize(std::vector<double> values, std::span<const double> percents);

}  // namespace nibble
