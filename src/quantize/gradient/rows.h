// Rows: a matrix of F32 numbers, a row for each token of a pass, and the pass itself. The room
// computes with whole samples, so a sample's positions are 0, 1, 2, ... and nothing is cached.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "model/devices/gradient_device.h"
#include "model/weights/weights.h"

namespace nibble::gradient {

class DenseLinear;

struct Rows {
  int64_t count = 0;
  int64_t width = 0;
  std::vector<float> values;  // [count, width]

  Rows() = default;
  /// Zeros.
  Rows(int64_t rows, int64_t columns)
      : count(rows), width(columns), values(static_cast<size_t>(rows * columns)) {}
  float* row(int64_t r) { return values.data() + r * width; }
  const float* row(int64_t r) const { return values.data() + r * width; }
};

/// Is shown a linear, its input [R, K] and the gradient of its output [R, N]. `rows` are
/// the pass's rows that these are, or empty: all of them in order.
using OutputGradientSeen = std::function<void(const DenseLinear& linear, const Rows& input,
                                              const Rows& gradient, std::span<const int32_t> rows)>;

/// The rows of a pass, and all that its steps share.
struct Pass {
  std::vector<SampleRows> samples;
  ThreadPool& threads;
  OutputGradientSeen seen = {};

  int64_t rows() const { return samples.empty() ? 0 : samples.back().begin + samples.back().count; }
};

}  // namespace nibble::gradient
