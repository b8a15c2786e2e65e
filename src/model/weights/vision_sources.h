// VisionSources: the tensors of a vision tower bound to their roles. Its blocks are those of
// model.md 4.2; names and shapes are transformers'.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/config/vision_config.h"
#include "model/weights/weight_source.h"

namespace nibble {

/// y = W x + b.
struct BiasedSource {
  LinearSource weight;
  VectorSource bias;  // [rows]
};

struct LayerNormSource {
  VectorSource weight, bias;  // [hidden]
};

struct VisionBlockSources {
  LayerNormSource norm1, norm2;
  BiasedSource qkv;       // [3 hidden, hidden]: rows of q, of k, of v; each by heads
  BiasedSource proj;      // [hidden, hidden]
  BiasedSource fc1, fc2;  // [inner, hidden], [hidden, inner]
};

struct VisionSources {
  BiasedSource patches;    // [hidden, patch_values]
  VectorSource positions;  // [table_side^2, hidden]
  std::vector<VisionBlockSources> blocks;
  LayerNormSource merger_norm;
  BiasedSource merger_fc1, merger_fc2;  // [merged_width, merged_width], [out, merged_width]
};

/// The patch embedding as it is stored: the kernel of a convolution whose stride is its size.
inline Shape patch_shape(const VisionConfig& v) {
  return {v.hidden, VisionConfig::kChannels, v.temporal_patch, v.patch, v.patch};
}

/// The way to a linear [rows, cols] by its module name, and to a small tensor by its name.
struct VisionNaming {
  std::function<Result<LinearSource>(const std::string& module, int64_t rows, int64_t cols)> linear;
  std::function<Result<VectorSource>(const std::string& name, const Shape& shape)> vector;
};

/// Names the tensors of a tower below `prefix` ("model.visual."), in the order of the blocks.
/// Errors: those of `naming`.
Result<VisionSources> name_vision(const VisionConfig& vision, const std::string& prefix,
                                  const VisionNaming& naming);

/// The tower as published files store it, in one plain format under "model.visual.".
VisionSources plain_vision(const VisionConfig& vision);

/// Calls linear(LinearSource) and vector(VectorSource) with each tensor, in the order of the
/// blocks.
template <typename Linear, typename Vector>
void visit_vision(const VisionSources& tower, const Linear& linear, const Vector& vector) {
  const auto biased = [&](const BiasedSource& source) {
    linear(source.weight);
    vector(source.bias);
  };
  const auto norm = [&](const LayerNormSource& source) {
    vector(source.weight);
    vector(source.bias);
  };
  biased(tower.patches);
  vector(tower.positions);
  for (const VisionBlockSources& block : tower.blocks) {
    norm(block.norm1);
    norm(block.norm2);
    for (const BiasedSource* part : {&block.qkv, &block.proj, &block.fc1, &block.fc2})
      biased(*part);
  }
  norm(tower.merger_norm);
  biased(tower.merger_fc1);
  biased(tower.merger_fc2);
}

}  // namespace nibble
