// The machine that a benchmark ran on, as facts for its report.
#pragma once

#include <vector>

#include "base/json.h"

namespace nibble {

/// Version of this program, date, processor, usable cores, memory, cards and driver; in this order,
/// without what cannot be learnt.
std::vector<Json::Member> bench_machine();

}  // namespace nibble
