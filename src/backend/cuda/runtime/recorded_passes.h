// RecordedPasses: passes of generated tokens as CUDA graphs, one for each of a few extents.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "backend/cuda/batch_view.h"
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

  /// Records what `walk` launches on the stream as the pass of that extent. Errors: no_memory.
  Result<void> record(const Extent& extent, cudaStream_t stream,
                      const std::function<void()>& walk);
  /// The extent with the fewest rows of the recordings that a pass, filled up with padding, can run
  /// on.
  std::optional<Extent> fitting(const Extent& pass) const;
  cudaGraphExec_t at(const Extent& extent) const { return graphs_.at(extent); }

 private:
  std::map<Extent, cudaGraphExec_t> graphs_;
};

}  // namespace nibble::cuda
