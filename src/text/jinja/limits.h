// Bounds on what one template may cost. Every one ends in an error that names it, never in a crash.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nibble {

struct TemplateLimits {
  size_t source_bytes_max = size_t{1} << 20;
  size_t output_bytes_max = size_t{16} << 20;  // of the prompt, and of any one string
  int64_t steps_max = 5'000'000;  // nodes evaluated, items visited, 64-byte chunks of text made
  int depth_max = 200;            // nesting of blocks, expressions, macro calls and values
};

}  // namespace nibble
