// Detects which kernels this machine can run.
#pragma once

#include <string_view>
#include <vector>

#include "backend/cpu/kernels.h"
#include "base/result.h"

namespace nibble::cpu {

/// The tables this processor and operating system can run, fastest first; never empty.
std::vector<const KernelTable*> usable_kernels();

/// The named table, or the fastest for an empty name. Errors: unsupported (names the usable ones).
Result<const KernelTable*> select_kernels(std::string_view isa);

}  // namespace nibble::cpu
