// Timings of the products of generation arithmetic.
#pragma once

namespace nibble::bench {

/// Prints the head of Qwen3.6-35B-A3B with inputs in shared memory and streamed, and the long rows
/// of Qwen3.6-27B.
void time_products();

}  // namespace nibble::bench
