// Timings that the check programs print.
#pragma once

namespace nibble::bench {

/// The head of Qwen3.6-35B-A3B with inputs in shared memory and streamed, and the long rows of
/// Qwen3.6-27B.
void time_products();
/// The operations of a vision tower of the 35B's shape.
void time_vision();

}  // namespace nibble::bench
