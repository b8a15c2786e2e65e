// Coordinate descent lowers what GPTQ leaves of the loss (gptq_descent.inl.h): this is what it
// needs to know of a linear's input, made once per linear.
#pragma once

#include <cstdint>
#include <vector>

#include "quantize/rounding/gptq_factor.h"

namespace nibble {

/// The loss of a row of errors e is e^T H e, H as GptqFactor has it, columns in its order.
struct DescentMoment {
  int64_t cols = 0;
  std::vector<float> moment;    // H [K, K], both triangles
  std::vector<float> diagonal;  // [K]: its diagonal
  /// [K/16, 16, 16]: for each block of 16 columns, with B its part of H's diagonal, V upper
  /// triangular and V^T V = B^-1; zeros below its diagonal.
  std::vector<float> block_factors;
};

/// `factor` was made from the same statistics.
DescentMoment make_descent_moment(const GptqFactor& factor, const InputStatistics& statistics);

}  // namespace nibble
