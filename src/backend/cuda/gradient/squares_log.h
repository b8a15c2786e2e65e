// SquaresLog: the squared lengths that a pass makes for its linears, until it tells of them, which
// may be while the next pass runs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cuda/ops/gradient/gradient_moe.h"
#include "backend/cuda/ops/gradient/gradient_rows.h"
#include "backend/cuda/runtime/device_memory.h"
#include "backend/cuda/runtime/stream.h"
#include "model/devices/gradient_device.h"

namespace nibble::cuda {

class SquaresLog {
 public:
  /// Once. `memory` [most] is of the card. Errors: no_memory, of the host.
  Result<void> use(double* memory, int64_t most, cudaStream_t stream);
  /// Nothing is noted of a new pass.
  void begin();
  /// Computes those of `rows` rows, and returns their place.
  int64_t lengths(const float* x, const int32_t* gather, int32_t rows, int64_t width);
  /// Those of rows that are multiplied with a weight, given the place of those before it.
  int64_t weighed(const WeighedRows& rows, int64_t lengths);
  /// Those of the gradient of labels, which it makes.
  int64_t labels(const LabelRows& rows, uint16_t* gradient);
  /// Rows of a linear; `rows` as in LinearSquares, alive until tell().
  struct Noted {
    const LinearSource* linear = nullptr;
    int64_t inputs = 0;  // places
    int64_t gradients = 0;
    int64_t count = 0;
    std::span<const int32_t> rows = {};
  };
  void note(const Noted& noted) { noted_.push_back(noted); }
  /// The pass is complete; what was noted is on its way to the host.
  void send(const SquaresSeen& seen);
  /// Waits for what was sent last and shows it, once.
  void tell();

 private:
  double* memory_ = nullptr;
  int64_t most_ = 0, used_ = 0;
  cudaStream_t stream_ = nullptr;
  int64_t reserve(int64_t count);
  std::vector<Noted> noted_, sent_;
  SquaresSeen seen_;  // of those sent; empty: all was told
  PinnedBuffer values_;
  Event there_;
};

}  // namespace nibble::cuda
