// SwiGLU: down( silu(gate x) * (up x) ). Also the form of one expert.
#pragma once

#include <vector>

#include "backend/reference/linear.h"

namespace nibble::reference {

struct DenseMlp {
  Linear gate, up, down;

  static Result<DenseMlp> load(const Weights& weights, const MlpSources& sources,
                               const LinearOptions& options);
  /// x [T, hidden] -> [T, hidden]. `first_row`: the pass's row that the first of x is, for taps.
  std::vector<float> run(const std::vector<float>& x, int64_t first_row = 0) const;
};

}  // namespace nibble::reference
