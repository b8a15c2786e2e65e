// A whole linear as numbers.
#pragma once

#include <cstddef>
#include <vector>

#include "model/weights/weights.h"

namespace nibble {

/// [rows * cols], in row order.
inline std::vector<float> dequantized(const LinearWeight& weight) {
  std::vector<float> values(static_cast<size_t>(weight.rows * weight.cols));
  dequantize_rows(weight, 0, weight.rows, values.data());
  return values;
}

}  // namespace nibble
