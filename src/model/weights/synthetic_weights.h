// The place that every tensor of a model would have in a checkpoint that this program could have
// written (compressed-tensors names): what weights without a file, and files without a training
// run, are made after. Holds no numbers.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "model/config/config.h"
#include "model/weights/weights.h"

namespace nibble {

/// The layout in which the linears are stored.
enum class WeightLayout : uint8_t {
  mixed,  // NVFP4 experts, shared expert, dense MLP; FP8 projections and head; the rest BF16
  mixed_nvfp4_head,  // as mixed, head NVFP4: what the published files of NVIDIA hold
  nvfp4,             // attention projections NVFP4 too, delta-net projections BF16
  w4a4,  // as nvfp4, head BF16: what the published W4A4 files of RedHatAI, ig1, inferRouter hold
  fp8,   // as mixed, what is NVFP4 there FP8, the head with one scale
  bf16,
};
std::string_view weight_layout_name(WeightLayout layout);
/// Errors: invalid_argument.
Result<WeightLayout> parse_weight_layout(std::string_view name);

/// Format of a linear by its module name.
using FormatOf = std::function<WeightFormat(std::string_view module)>;
FormatOf formats_of(WeightLayout layout);
/// The formats that the quantization_config of a config.json declares; plain without one. FP8 in
/// blocks counts as one scale per tensor. Errors: those of QuantConfig::parse.
Result<FormatOf> declared_formats(const Json& config);

/// A linear of these rows and columns as such a checkpoint stores it.
LinearSource stored_linear(std::string module, int64_t rows, int64_t cols, WeightFormat format);

struct SyntheticWeights {
  LinearSource embedding;  // BF16
  LinearSource head;       // the embedding when tied
  VectorSource final_norm;
  std::vector<LayerSources> layers;
  std::optional<MtpSources> mtp;        // with ModelConfig::draft_layers, in its draft_format
  std::optional<VisionSources> vision;  // with ModelConfig::vision; BF16
};
SyntheticWeights synthetic_weights(const ModelConfig& config, const FormatOf& formats);

}  // namespace nibble
