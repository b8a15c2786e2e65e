// The second moment in floats, and a small factorisation in doubles for each block of it; no rows
// are rounded here.
#include "quantize/rounding/gptq_descent.h"

#include "base/check.h"
#include "quantize/rounding/square_matrix.h"

namespace nibble {
namespace {

/// V of the block of 16 columns from `b` on.
void append_block_factor(const DampedMoment& h, size_t b, std::vector<float>& out) {
  SquareMatrix block = {.n = 16, .values = std::vector<double>(256)};
  for (size_t i = 0; i < 16; ++i)
    for (size_t j = i; j < 16; ++j) block.row(i)[j] = h.at(b + i, b + j);
  CHECK(factorise(block), "block at column ", b);
  invert(block);
  for (size_t i = 0; i < 16; ++i)
    for (size_t j = 0; j < 16; ++j)
      out.push_back(j < i ? 0.0F : static_cast<float>(block.row(i)[j]));
}

}  // namespace

DescentMoment make_descent_moment(const GptqFactor& factor, const InputStatistics& statistics) {
  const DampedMoment h(factor, statistics);
  const auto n = static_cast<size_t>(factor.cols);
  DescentMoment out;
  out.cols = factor.cols;
  out.moment.resize(n * n);
  for (size_t i = 0; i < n; ++i)
    for (size_t j = i; j < n; ++j)
      out.moment[i * n + j] = out.moment[j * n + i] = static_cast<float>(h.at(i, j));
  for (size_t i = 0; i < n; ++i) out.diagonal.push_back(out.moment[i * n + i]);
  for (size_t b = 0; b < n; b += 16) append_block_factor(h, b, out.block_factors);
  return out;
}

}  // namespace nibble
