// Linear: y = W x with W in its file format, and x rounded as the activation mode says.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/reference/prompt_rounding.h"
#include "base/result.h"
#include "model/backend.h"
#include "model/taps.h"
#include "model/weights/weights.h"

namespace nibble::reference {

struct LinearOptions {
  Activations mode = Activations::f32;
  PromptRounding rounding = PromptRounding::none;  // bf16: declared inputs are made of BF16 ones
  InputScales input_scales = InputScales::amax;
  Taps* const* taps = nullptr;  // where the taps of the pass under way are, or none
};

class Linear {
 public:
  /// An absent source gives an empty linear that must not be applied.
  static Result<Linear> load(const Weights& weights, const LinearSource& source,
                             const LinearOptions& options);

  int64_t rows() const { return weight_.rows; }
  int64_t cols() const { return weight_.cols; }
  /// x [T, K] -> y [T, N]: dequantized rows, double accumulation, rounded once to F32.
  /// `first_row`: the pass's row that the first of x is, for taps.
  std::vector<float> apply(const std::vector<float>& x, int64_t first_row = 0) const;
  /// One row of the matrix as F32: the embedding of a token.
  void row(int64_t index, float* out) const { dequantize_rows(weight_, index, index + 1, out); }

 private:
  /// Inputs as the multiplication sees them: f32 and auto unchanged, bf16 rounded to BF16, declared
  /// through the scheme's own quantization.
  void round_input(float* x) const;
  void tap(const std::vector<float>& x, int64_t first_row) const;

  LinearWeight weight_;
  LinearOptions options_;
};

}  // namespace nibble::reference
