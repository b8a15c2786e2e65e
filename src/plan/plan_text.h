// Numbers of the plan in words, for its table and its errors.
#pragma once

#include <cstdint>
#include <string>

namespace nibble {

/// "1234.5 MB", of 10^6 bytes.
std::string plan_megabytes(int64_t bytes);

}  // namespace nibble
