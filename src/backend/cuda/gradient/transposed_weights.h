// TransposedWeights: the matrices of a layer or of the head the other way round, for the products
// that lead backward. They are made on the card when they are first asked for.
#pragma once

#include <cuda_runtime_api.h>

#include <unordered_map>

#include "backend/cuda/ops/gradient/gradient_operands.h"
#include "model/weights/weights.h"

namespace nibble::cuda {

/// Bytes of those of all linears of a layer, or of one linear.
int64_t transposed_bytes_of(const LayerSources& layer);
int64_t transposed_bytes_of(const LinearSource& linear);

class TransposedWeights {
 public:
  /// Memory of the card, for all matrices that follow until forget().
  void use(std::byte* memory, int64_t bytes, cudaStream_t stream);
  /// The matrices change; the stream is at rest.
  void forget();
  DeviceLinear of(const MatrixToTranspose& matrix);

 private:
  std::byte* memory_ = nullptr;
  int64_t bytes_ = 0, used_ = 0;
  cudaStream_t stream_ = nullptr;
  std::unordered_map<const uint8_t*, DeviceLinear> made_;
};

}  // namespace nibble::cuda
