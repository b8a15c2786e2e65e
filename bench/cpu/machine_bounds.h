// The best that this machine can do, measured: the denominators of every share in the benchmarks.
#pragma once

#include <functional>
#include <string_view>

namespace nibble::bench {

/// Seconds of the fastest of many calls within `budget_s`. On a shared machine the fastest call is
/// the one nobody disturbed.
double fastest_s(double budget_s, const std::function<void()>& call);

/// F32 FMAs per second of one core with the named instruction set; 0 if it cannot be measured.
double fma_per_s(std::string_view isa);

/// Products of 8-bit integers per second on one core: VNNI, or pairs into 16 bits with AVX2; 0
/// where neither is.
double int8_per_s(std::string_view isa);
/// Products of BF16 numbers per second on one core; those of F32 where BF16 has none of its own.
double bf16_per_s(std::string_view isa);
/// Bytes per second that one core reads from a buffer of this size, streaming.
double read_bytes_per_s(size_t buffer_bytes);

}  // namespace nibble::bench
