// GradientDevice: the backward sweep of quantize/gradient/fisher_weights.h where a card is. All
// that leaves the card are squared lengths; numbers are F32 as on the CPU, in other orders of sums.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/result.h"
#include "model/sample_passes.h"
#include "model/weights/weight_source.h"

namespace nibble {

/// The rows of one sample within a pass.
struct SampleRows {
  int64_t begin = 0;
  int64_t count = 0;
};

/// Whole samples that follow one another among those of a group.
struct GradientPass {
  int64_t first_row = 0;  // of the group
  std::span<const SampleRows> samples;
  int64_t rows() const { return samples.back().begin + samples.back().count; }
};

/// A linear, and of each of its rows in a pass the squared lengths of its input and of the gradient
/// of its output; zero where that is no finite number.
struct LinearSquares {
  const LinearSource& linear;
  std::span<const int32_t> rows;  // of the pass; empty: all in order
  std::span<const double> inputs;
  std::span<const double> gradients;
};
using SquaresSeen = std::function<void(const LinearSquares& squares)>;

/// Groups of samples one after the other; of a group all layers forward, in order, then the head,
/// then all layers backward, each of them pass by pass.
class GradientDevice {
 public:
  virtual ~GradientDevice() = default;
  /// One line for people.
  virtual std::string description() const = 0;
  /// Rows of a group at most; at least those of the longest sample.
  virtual int64_t group_rows() const = 0;
  /// A pass has no more than these, or is one longer sample.
  virtual PassLimits pass_limits() const = 0;
  /// A group's rows: `rows` of all samples, from `first_row` on, whose embeddings the device knows.
  virtual Result<void> begin(int64_t first_row, int64_t rows) = 0;
  /// Reads the weights of a layer, or of the head: layer_count(). `next` is read meanwhile unless
  /// it is no layer.
  virtual Result<void> open(int layer, int next) = 0;
  virtual void forward(const GradientPass& pass) = 0;
  /// `random`: for each row a number in [0, 1) that draws the token after it.
  virtual void head(const GradientPass& pass, int draw, std::span<const double> random,
                    const SquaresSeen& seen) = 0;
  /// `seen` is called now, or in the next call for this layer, or in finish_layer().
  virtual void backward(const GradientPass& pass, int draw, const SquaresSeen& seen) = 0;
  /// After the last backward() of a layer.
  virtual void finish_layer() {}
};

/// The samples that a GradientDevice is asked to take.
struct GradientNeeds {
  int64_t rows = 0;     // of all samples
  int64_t longest = 0;  // rows of the longest
  int draws = 1;
};

}  // namespace nibble
