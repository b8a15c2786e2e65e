// Lines of checks: "ok   NAME VALUE".
#include "backend/cuda/checks/tally.h"

#include <cstdarg>
#include <cstdio>

namespace nibble::checks {

void Tally::check(CheckOutcome outcome, const char* name, double value) {
  const bool ok = outcome.ok;
  ok ? ++passed : ++failed;
  if (!ok && failures.size() < kFailuresMax) failures.emplace_back(name);
  if (!(value <= worst)) worst = worst == worst ? value : worst;
  print("%s %-64s %.3g", ok ? "ok  " : "FAIL", name, value);
}

void Tally::print(const char* format, ...) {
  if (!report_) return;
  char line[512];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  report_(line);
}

}  // namespace nibble::checks
