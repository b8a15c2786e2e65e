// The factorisation that GPTQ needs of a symmetric matrix, in doubles.
#pragma once

#include <cstddef>
#include <vector>

namespace nibble {

struct SquareMatrix {
  size_t n = 0;
  std::vector<double> values;  // [n, n], row by row
  double* row(size_t i) { return values.data() + i * n; }
  const double* row(size_t i) const { return values.data() + i * n; }
};

/// H = M M^T with M upper triangular, in place of the upper triangle of H; from the last column to
/// the first. False if H is not positive definite.
bool factorise(SquareMatrix& h);

/// The inverse of an upper triangular matrix, in place.
void invert(SquareMatrix& m);

}  // namespace nibble
