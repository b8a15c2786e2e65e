// Bytes of a tensor that quantize and convert read, round or copy at once. The block size changes
// the memory of a run, never its output; tests make it tiny to run the paths of several blocks.
#pragma once

#include <cstdint>

namespace nibble {

inline constexpr int64_t kBlockBytes = int64_t{8} << 20;

}  // namespace nibble
