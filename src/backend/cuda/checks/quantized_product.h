// Products of codes as calls and what they must give: what the check of kernels and that of
// planted mistakes share.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "backend/cuda/checks/quantized_operands.h"
#include "backend/cuda/checks/tally.h"

namespace nibble::checks {

using cuda::ColumnOrder;
using cuda::QuantizedGemm;
using cuda::QuantizedOutput;

/// A QuantizedProduct is one call and what it must give: row i of the result is at y_rows[i] and
/// was made of row x_rows[i] of x and matrix matrices[i].
struct QuantizedProduct {
  std::string name;
  Numbers numbers;
  QuantizedOutput output;
  ColumnOrder order = ColumnOrder::packed;
  RowFactors row_factors = RowFactors::none;
  QuantizedSide x, w, up;
  int n;
  std::vector<int32_t> x_rows, matrices, y_rows;
  int64_t y_total = 0;  // rows of y
  int64_t y_stride = 0;
};

/// Returns y, [y_total][y_stride] numbers as F32; where nothing was written, what was there.
struct QuantizedOutcome {
  std::vector<float> values;
  std::vector<uint32_t> bits;
};
QuantizedOutcome run(const QuantizedProduct& p,
                     const std::function<void(const QuantizedGemm&)>& launch_it);

/// Numbers that differ from what they must be, in bits (sums that are exact) or by the error that
/// roundings may have, and numbers that were written though no row of the result is there.
struct QuantizedVerdict {
  int64_t wrong_bits = 0;
  double error = 0.0;
  int64_t strayed = 0;
  bool fine(const QuantizedProduct& p) const;
};
/// Checks that results of swiglu that become codes are those that a kernel of its own makes of
/// `results`. `launch_it` launches as for them.
void check_swiglu_codes(Tally& tally, const QuantizedProduct& p, const QuantizedOutcome& results,
                        const std::function<void(const QuantizedGemm&)>& launch_it,
                        const cuda::Launcher& launcher);

QuantizedVerdict judge(const QuantizedProduct& p, const QuantizedOutcome& result);

/// A linear of random numbers.
struct DenseShape {
  int rows, n, k;
};
QuantizedProduct dense(const SideFormat& kind, const DenseShape& shape, QuantizedOutput output,
                       Numbers numbers);
void free_sides(const QuantizedProduct& p);

}  // namespace nibble::checks
