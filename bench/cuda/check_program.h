// The parts that check programs share: a line for each check, a last line that counts, and an
// end without a mistake where there is no card.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>

#include "backend/cuda/checks/card_checks.h"
#include "backend/cuda/checks/part_runner.h"
#include "backend/cuda/cuda_backend.h"

namespace nibble::bench {

/// The words after the program's name; each may be asked for.
class Words {
 public:
  Words(int count, char** words) : count_(count - 1), words_(words + 1) {}
  bool none() const { return count_ <= 0; }
  bool has(const char* word) const {
    return std::any_of(words_, words_ + std::max(count_, 0),
                       [&](const char* each) { return std::strcmp(each, word) == 0; });
  }

 private:
  int count_;
  char** words_;
};

/// Runs `checks` where there is a card, and returns the exit code of the program.
inline int run_checks(const std::function<void(checks::Tally&)>& checks) {
  if (const auto device = describe_cuda_device(); !device.ok()) {
    std::printf("skipped: %s\n", device.error().message.c_str());
    return 0;
  }
  checks::Tally tally([](const std::string& line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  });
  try {
    checks(tally);
  } catch (const checks::CardFailure& failure) {
    tally.check(false, failure.what(), std::nan(""));
  }
  std::printf("%d passed, %d failed\n", tally.passed, tally.failed);
  return tally.failed == 0 ? 0 : 1;
}

}  // namespace nibble::bench
