// GradientSquares: gathers the squared output gradients of linears, and makes weights of them.
#pragma once

#include "model/devices/gradient_device.h"
#include "quantize/gradient/fisher_weights.h"
#include "quantize/gradient/rows.h"

namespace nibble::gradient {

class GradientSquares {
 public:
  explicit GradientSquares(std::function<bool(const std::string& module)> wants)
      : wants_(std::move(wants)) {}

  /// Rows of a pass that begins at `first_token`. Of the first draw tokens come in order, of others
  /// in stretches that came before.
  struct Place {
    int64_t first_token = 0;
    int draw = 0;
  };
  /// At least one row.
  void add(const LinearSource& linear, const Rows& input, const Rows& gradient,
           std::span<const int32_t> rows, const Place& place);
  void add(const LinearSquares& squares, const Place& place);
  /// Weights as FisherOptions says. A linear without any gradient gets weights of 1.
  FisherWeights weights(double plain_share) &&;

 private:
  struct Gathered {
    TokenWeights squares;
    double plain = 0;     // sum of |x|^2
    double weighted = 0;  // sum of square * |x|^2
  };
  std::function<bool(const std::string& module)> wants_;
  std::map<std::string, Gathered, std::less<>> linears_;
};

}  // namespace nibble::gradient
