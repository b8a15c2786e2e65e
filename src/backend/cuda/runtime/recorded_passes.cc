// This file captures passes and instantiates them.
#include "backend/cuda/runtime/recorded_passes.h"

#include "backend/cuda/runtime/device_memory.h"
#include "base/concat.h"

namespace nibble::cuda {

void RecordedPasses::clear() {
  for (const auto& [rows, graph] : graphs_) cudaGraphExecDestroy(graph);
  graphs_.clear();
}

Result<void> RecordedPasses::record(int32_t rows, cudaStream_t stream,
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
                      {.what = concat("the recorded pass of ", rows, " rows"),
                       .found = cudaGetErrorString(made),
                       .advice = "leave the card more room: lower --gpu-memory-utilization"});
  }
  graphs_[rows] = executable;
  CUDA_CHECK(cudaGraphUpload(executable, stream));
  CUDA_CHECK(cudaStreamSynchronize(stream));
  return {};
}

int32_t RecordedPasses::fitting(int32_t rows) const {
  const auto found = graphs_.lower_bound(rows);
  return found == graphs_.end() ? 0 : found->first;
}

}  // namespace nibble::cuda
