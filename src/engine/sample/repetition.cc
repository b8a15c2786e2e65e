// A tail of c patterns of p tokens is a run of p (c - 1) tokens equal to the one p before them.
#include "engine/sample/repetition.h"

#include <algorithm>

#include "base/check.h"
#include "base/planted_bug.h"

namespace nibble {

RepetitionStop::RepetitionStop(const RepetitionLimits& limits) : limits_(limits) {
  CHECK(limits_.pattern_min >= 1 && limits_.pattern_max >= limits_.pattern_min, "patterns of ",
        limits_.pattern_min, " to ", limits_.pattern_max);
  CHECK(limits_.count_min >= 2, "count_min ", limits_.count_min);
  runs_.assign(static_cast<size_t>(limits_.pattern_max - limits_.pattern_min + 1), 0);
}

TokenConstraint::MaskState RepetitionStop::mask(std::span<const int32_t>, std::span<uint32_t>) {
  return MaskState::open;
}

std::optional<size_t> RepetitionStop::accept(std::span<const int32_t> tokens) {
  for (size_t i = 0; i < tokens.size(); ++i)
    if (push(tokens[i])) return i + 1;
  return std::nullopt;
}

bool RepetitionStop::push(int32_t token) {
  tokens_.push_back(token);
  bool found = false;
  for (size_t i = 0; i < runs_.size(); ++i) {
    const auto period = static_cast<size_t>(limits_.pattern_min) + i;
    if (period >= tokens_.size()) break;
    const bool equal = tokens_[tokens_.size() - 1 - period] == token;
    runs_[i] = equal ? std::min(runs_[i] + 1, needed(static_cast<int32_t>(period))) : 0;
    found |= runs_[i] >= needed(static_cast<int32_t>(period));
  }
  return found;
}

int32_t RepetitionStop::run_of(int32_t period) const {
  const auto size = static_cast<int32_t>(tokens_.size());
  int32_t run = 0;
  while (run < needed(period) && size - 1 - run - period >= 0 &&
         tokens_[static_cast<size_t>(size - 1 - run)] ==
             tokens_[static_cast<size_t>(size - 1 - run - period)])
    ++run;
  return run;
}

void RepetitionStop::rollback(size_t count) {
  CHECK(count <= tokens_.size(), "rollback ", count, " of ", tokens_.size());
  if (count == 0) return;
  tokens_.resize(tokens_.size() - count);
  if (planted(kBugRollbackKeepsRuns)) return;
  for (size_t i = 0; i < runs_.size(); ++i)
    runs_[i] = run_of(limits_.pattern_min + static_cast<int32_t>(i));
}

}  // namespace nibble
