// The report of a load test as one HTML file with charts: nothing in it is loaded from elsewhere
// and nothing runs.
#pragma once

#include <string>

#include "bench/load_series.h"

namespace nibble {

std::string load_page(const LoadReport& report);

}  // namespace nibble
