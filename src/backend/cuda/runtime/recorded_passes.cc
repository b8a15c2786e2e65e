// This file captures passes and instantiates them.
#include "backend/cuda/runtime/recorded_passes.h"

#include "backend/cuda/runtime/device_memory.h"
#include "base/concat.h"

namespace nibble::cuda {

void RecordedPasses::clear() {
  for (const auto& [extent, graph] : graphs_) cudaGraphExecDestroy(graph);
  graphs_.clear();
}

Result<void> RecordedPasses::record(const Extent& extent, cudaStream_t stream,
                                    const std::function<void()>& walk) {
  CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  walk();
  cudaGraph_t graph = nullptr;
  CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t executable = nullptr;
  const cudaError_t made = cudaGraphInstantiate(&executable, graph, 0);
  CUDA_CHECK(cudaGraphDestroy(graph));
  if (made != cudaSuccess) {
    cudaGetLastError();  // not sticky
    return make_error(ErrorCode::no_memory,
                      {.what = concat("the recorded pass of ", extent.rows, " rows"),
                       .found = cudaGetErrorString(made),
                       .advice = "leave the card more room: lower --gpu-memory-utilization"});
  }
  graphs_[extent] = executable;
  CUDA_CHECK(cudaGraphUpload(executable, stream));
  CUDA_CHECK(cudaStreamSynchronize(stream));
  return {};
}

std::optional<Extent> RecordedPasses::fitting(const Extent& pass) const {
  for (const auto& [extent, graph] : graphs_)
    if (extent.rows >= pass.rows && extent.sequences >= pass.sequences &&
        extent.replays == pass.replays && (pass.single_rows() || !extent.single_rows()))
      return extent;
  return std::nullopt;
}

}  // namespace nibble::cuda
