// Counts checks and passes their lines on. Nothing here prints or asks a card.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace nibble::checks {

/// True if a check passed.
struct CheckOutcome {
  CheckOutcome(bool passed) : ok(passed) {}
  bool ok;
};

class Tally {
 public:
  /// `report` gets each line as it is made, without a line break; it may be empty.
  explicit Tally(std::function<void(const std::string&)> report = {})
      : report_(std::move(report)) {}

  /// `value`: the error, or the number of what is wrong.
  void check(CheckOutcome outcome, const char* name, double value);
  /// A line beside the checks, in the form of printf.
  [[gnu::format(printf, 2, 3)]] void print(const char* format, ...);

  int passed = 0;
  int failed = 0;
  double worst = 0.0;                 // the largest value of all checks; NaN stays
  std::vector<std::string> failures;  // the names of those that failed, kFailuresMax at most

  static constexpr size_t kFailuresMax = 20;

 private:
  std::function<void(const std::string&)> report_;
};

}  // namespace nibble::checks
