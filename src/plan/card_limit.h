// The cards that one may imitate on a larger one: what a process can take of their memory, and what
// their kernels may use. A table, not a measurement.
#pragma once

#include <string_view>

#include "base/result.h"
#include "model/backend.h"

namespace nibble {

/// "rtx5090" and others of plan/card_table.h by name, or a number of bytes (K, M, G, T allowed:
/// powers of 1,024), which limits the memory alone; empty: no limit. Errors: invalid_argument,
/// naming the known cards; unsupported for a known card that is too old.
Result<CardLimit> card_limit(std::string_view text);

}  // namespace nibble
