// The weights of bicubic resizing along one direction, in the fixed point of a library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "media/bicubic_resize.h"

namespace nibble {

/// The inputs and weights of each output along one direction.
struct ResizeFilter {
  struct Output {
    int begin = 0;     // first input
    int count = 0;     // inputs
    size_t first = 0;  // its first weight in `weights`
  };
  std::vector<Output> outputs;
  std::vector<int32_t> weights;
  int bits = 0;  // a weight has so many behind the point

  const int32_t* weights_of(const Output& output) const { return weights.data() + output.first; }
};

ResizeFilter make_resize_filter(int from, int to, ResizeArithmetic arithmetic);

}  // namespace nibble
