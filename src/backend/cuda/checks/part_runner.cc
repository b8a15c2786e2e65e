// Times each part and takes down what it found.
#include "backend/cuda/checks/part_runner.h"

#include <chrono>
#include <cmath>

namespace nibble::checks {
namespace {

/// Errors: as run_parts.
Result<void> run_part(const Part& part, const std::function<Result<void>()>& alive, Tally& tally) {
  try {
    part.run(tally);
  } catch (const CardFailure& failure) {
    return make_error(ErrorCode::io, {.what = "the card failed", .found = failure.what()});
  }
  return alive();
}

/// A card that fails is a failed check, and no error can be told.
void add_failure(const Error& failure, CheckedPart& part) {
  ++part.failed;
  part.worst = std::nan("");
  part.failures.insert(part.failures.begin(), failure.message);
  if (part.failures.size() > Tally::kFailuresMax) part.failures.pop_back();
}

}  // namespace

Result<void> run_parts(std::span<const Part> parts, const std::function<Result<void>()>& alive,
                       const std::function<void(const CheckedPart&)>& report) {
  for (const Part& part : parts) {
    const auto begin = std::chrono::steady_clock::now();
    Tally tally;
    const Result<void> outcome = run_part(part, alive, tally);
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    CheckedPart done{.name = part.name,
                     .ran = part.ran,
                     .passed = tally.passed,
                     .failed = tally.failed,
                     .worst = tally.worst,
                     .seconds = spent.count(),
                     .failures = std::move(tally.failures)};
    if (!outcome.ok()) add_failure(outcome.error(), done);
    report(done);
    TRY(outcome);
  }
  return {};
}

}  // namespace nibble::checks
