// The tensors of a vision tower in device memory, a part of the WeightStore.
#pragma once

#include <vector>

#include "backend/cuda/weights/device_weights.h"

namespace nibble::cuda {

/// y = W x + b. W is BF16 [rows][cols], cols padded with zeros to a multiple of 64 and ordered as
/// vision_gemm wants them; b is F32 [rows].
struct BiasedWeights {
  DeviceLinear weight;
  const float* bias = nullptr;
};
struct LayerNormWeights {
  const float* weight = nullptr;  // [hidden]
  const float* bias = nullptr;
};
struct VisionBlockWeights {
  LayerNormWeights norm1, norm2;
  BiasedWeights qkv, proj;
  BiasedWeights fc1;  // with as many more rows of zeros, and biases, as fc2 has padded columns
  BiasedWeights fc2;
};
struct VisionWeights {
  BiasedWeights patches;
  const float* positions = nullptr;  // [table_side^2][hidden]
  std::vector<VisionBlockWeights> blocks;
  LayerNormWeights merger_norm;
  BiasedWeights merger_fc1, merger_fc2;

  bool present() const { return patches.weight.present(); }
};

/// Rows and columns of the tower's matrices in memory are multiples of this.
inline constexpr int64_t kVisionPad = 64;
constexpr int64_t vision_padded(int64_t count) {
  return (count + kVisionPad - 1) / kVisionPad * kVisionPad;
}

/// Calls act(BiasedWeights) with each matrix of a tower.
template <typename Act>
void each_matrix(const VisionWeights& tower, const Act& act) {
  act(tower.patches);
  for (const VisionBlockWeights& block : tower.blocks)
    for (const BiasedWeights* one : {&block.qkv, &block.proj, &block.fc1, &block.fc2}) act(*one);
  act(tower.merger_fc1);
  act(tower.merger_fc2);
}

}  // namespace nibble::cuda
