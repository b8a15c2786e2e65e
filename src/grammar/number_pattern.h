// The decimal texts of the numbers that a JSON Schema allows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "grammar/language.h"

namespace nibble {

enum class Bound : uint8_t { included, excluded };

struct NumberRange {
  bool whole = false;
  std::optional<double> least, most;  // of several, the strictest
  bool least_excluded = false, most_excluded = false;
  std::vector<double> multiples_of;

  void at_least(double bound, Bound kind);
  void at_most(double bound, Bound kind);
  bool bounded() const { return least || most || !multiples_of.empty(); }
  /// Some number may be in it, as far as its ends tell.
  bool open() const;
};

/// Without exponents where there is a bound. A choice of nothing where no number fits. Errors:
/// invalid_argument, for bounds and steps that are too long.
Result<Pattern> number_pattern(const NumberRange& range);

}  // namespace nibble
