// Products of 4-bit codes as calls and what they must give: what the check of kernels and that of
// planted mistakes share.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "backend/cuda/checks/fp4_operands.h"

namespace nibble::checks {

using cuda::ColumnOrder;
using cuda::Fp4Gemm;
using cuda::Fp4Output;

/// A Fp4Product is one call and what it must give: row i of the result is at y_rows[i] and was made
/// of row x_rows[i] of x and matrix matrices[i].
struct Fp4Product {
  std::string name;
  Numbers numbers;
  Fp4Output output;
  ColumnOrder order = ColumnOrder::packed;
  RowFactors row_factors = RowFactors::none;
  Fp4Side x, w, up;
  int n;
  std::vector<int32_t> x_rows, matrices, y_rows;
  int64_t y_total = 0;  // rows of y
  int64_t y_stride = 0;
};

/// Returns y, [y_total][y_stride] numbers as F32; where nothing was written, what was there.
struct Fp4Outcome {
  std::vector<float> values;
  std::vector<uint32_t> bits;
};
Fp4Outcome run(const Fp4Product& p, const std::function<void(const Fp4Gemm&)>& launch_it);

/// Numbers that differ from what they must be, in bits (sums that are exact) or by the error that
/// roundings may have, and numbers that were written though no row of the result is there.
struct Fp4Verdict {
  int64_t wrong_bits = 0;
  double error = 0.0;
  int64_t strayed = 0;
  bool fine(const Fp4Product& p) const;
};
Fp4Verdict judge(const Fp4Product& p, const Fp4Outcome& result);

/// A linear of random numbers.
struct DenseShape {
  int rows, n, k;
};
Fp4Product dense(const DenseShape& shape, Fp4Output output, Numbers numbers);
void free_sides(const Fp4Product& p);

}  // namespace nibble::checks
