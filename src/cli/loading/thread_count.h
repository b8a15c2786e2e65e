// The option --threads, which is the same for every verb that computes on the CPU.
#pragma once

#include "base/result.h"
#include "cli/verb.h"

namespace nibble {

inline constexpr Option kThreadsOption = {"threads", "N", "0", "threads; 0 is one per usable core"};

/// The number of threads, at least 1. Errors: invalid_argument, also for more threads than cores
/// that this process may use.
Result<int> read_threads(const Arguments& arguments);

}  // namespace nibble
