// Capture and instantiation.
#include "backend/cuda/runtime/recorded_passes.h"

#include <algorithm>
#include <array>

#include "backend/cuda/runtime/device_memory.h"
#include "base/concat.h"

namespace nibble::cuda {
namespace {

constexpr std::array<int32_t, 20> kRows = {1,  2,  4,  8,  12,  16,  24,  32,  40,  48,
                                           56, 64, 80, 96, 112, 128, 160, 192, 224, 256};

}  // namespace

void RecordedPasses::clear() {
  for (const auto& [rows, graph] : graphs_) cudaGraphExecDestroy(graph);
  graphs_.clear();
}

std::span<const int32_t> RecordedPasses::all_rows() { return kRows; }

std::span<const int32_t> RecordedPasses::rows_for(int64_t sequences, int32_t rows_max) {
  const auto last = std::ranges::lower_bound(kRows, sequences);
  auto count = static_cast<size_t>(last - kRows.begin());
  // The last one holds all sequences; it must fit the workspace.
  if (count < kRows.size() && kRows[count] <= rows_max) ++count;
  return std::span(kRows).first(count);
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
