// RecordedPasses: passes of generated tokens as CUDA graphs, one for each of a few numbers of rows.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <map>

#include "backend/cuda/runtime/launcher.h"
#include "base/result.h"

namespace nibble::cuda {

/// The steps of a recorded pass whose kernels ask for one L1/shared-memory carveout; kernels that
/// need more shared memory get it all the same. Measured on an H200: docs/kernels.
constexpr uint32_t carveout_steps(int32_t rows) {
  return rows == 1 || rows > 32 ? UINT32_MAX : step_bit(Step::router);
}

class RecordedPasses {
 public:
  RecordedPasses() = default;
  RecordedPasses(const RecordedPasses&) = delete;
  RecordedPasses& operator=(const RecordedPasses&) = delete;
  ~RecordedPasses() { clear(); }
  void clear();

  /// Records what `walk` launches on the stream as the pass of `rows` rows. Errors: no_memory.
  Result<void> record(int32_t rows, cudaStream_t stream, const std::function<void()>& walk);
  /// The rows of the recording that a pass of `rows` rows, filled up with padding, runs on; 0 if
  /// there is none.
  int32_t fitting(int32_t rows) const;
  cudaGraphExec_t at(int32_t rows) const { return graphs_.at(rows); }

 private:
  std::map<int32_t, cudaGraphExec_t> graphs_;
};

}  // namespace nibble::cuda
