// Events, one copied number, two fills.
#include "backend/cuda/pass_probe.h"

#include <algorithm>

namespace nibble::cuda {

double replay_us(cudaGraphExec_t graph, int repeats, cudaStream_t stream) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  CUDA_CHECK(cudaEventCreate(&begin));
  CUDA_CHECK(cudaEventCreate(&end));
  CUDA_CHECK(cudaEventRecord(begin, stream));
  for (int i = 0; i < repeats; ++i) CUDA_CHECK(cudaGraphLaunch(graph, stream));
  CUDA_CHECK(cudaEventRecord(end, stream));
  CUDA_CHECK(cudaStreamSynchronize(stream));
  float ms = 0.0F;
  CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
  CUDA_CHECK(cudaEventDestroy(begin));
  CUDA_CHECK(cudaEventDestroy(end));
  return 1e3 * static_cast<double>(ms) / repeats;
}

int64_t experts_met(const Workspace& work, const MoeConfig& config, int32_t rows,
                    cudaStream_t stream) {
  const int64_t row_block = std::min(rows, kMoeRowBlock);
  const auto* sum =
      work.choices.as<int32_t>() + 3 * row_block * config.top_k + 2 * config.experts + 2;
  int32_t met = 0;
  CUDA_CHECK(cudaMemcpyAsync(&met, sum, sizeof(met), cudaMemcpyDeviceToHost, stream));
  CUDA_CHECK(cudaStreamSynchronize(stream));
  return met;
}

/// All bits set is NaN in F32 and in BF16.
void spoil_row(const Workspace& work, int64_t row, int64_t hidden, cudaStream_t stream) {
  const auto columns = static_cast<size_t>(hidden);
  CUDA_CHECK(
      cudaMemsetAsync(work.h.as<float>() + row * hidden, 0xFF, columns * sizeof(float), stream));
  CUDA_CHECK(cudaMemsetAsync(work.x.as<uint16_t>() + row * work.x_stride, 0xFF,
                             columns * sizeof(uint16_t), stream));
}

}  // namespace nibble::cuda
