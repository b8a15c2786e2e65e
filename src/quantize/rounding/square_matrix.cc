// Plain loops over rows, which the compiler turns into vectors.
#include "quantize/rounding/square_matrix.h"

#include <algorithm>
#include <cmath>

namespace nibble {

bool factorise(SquareMatrix& h) {
  const size_t n = h.n;
  for (size_t k = n; k-- > 0;) {
    const double pivot = h.row(k)[k];
    if (!(pivot > 0.0) || !std::isfinite(pivot)) return false;
    const double root = std::sqrt(pivot);
    std::vector<double> column(k + 1);  // of M, above the diagonal and on it
    for (size_t i = 0; i < k; ++i) column[i] = h.row(i)[k] / root;
    column[k] = root;
    for (size_t i = 0; i <= k; ++i) h.row(i)[k] = column[i];
    for (size_t i = 0; i < k; ++i) {
      double* row = h.row(i);
      for (size_t j = i; j < k; ++j) row[j] -= column[i] * column[j];
    }
  }
  return true;
}

/// From the last row to the first, row i is (e_i - sum over k > i of M_ik row_k) / M_ii, the sum
/// from the last k down: a device can then take whole blocks of rows off all those above at once.
void invert(SquareMatrix& m) {
  const size_t n = m.n;
  std::vector<double> sum(n);
  for (size_t i = n; i-- > 0;) {
    std::fill(sum.begin(), sum.end(), 0.0);
    for (size_t k = n; --k > i;) {
      const double factor = m.row(i)[k];
      const double* row = m.row(k);
      for (size_t j = k; j < n; ++j) sum[j] -= factor * row[j];
    }
    const double pivot = 1.0 / m.row(i)[i];
    sum[i] = 1.0;
    for (size_t j = i; j < n; ++j) m.row(i)[j] = sum[j] * pivot;
  }
}

}  // namespace nibble
