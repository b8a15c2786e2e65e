// Writes a checkpoint of any shape with random weights: for capacity and load tests without a
// download, and for tests of single blocks. The numbers are normal, deterministic in the seed, and
// repeat after some millions; the model says nothing sensible.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "model/weights/synthetic_weights.h"

namespace nibble {

/// FP8 weights, and the inputs they declare where they do: one scale and inputs per token, one and
/// a static scale, 128 x 128 blocks and groups of 128. (Beside NVFP4 weights inputs have 4 bits.)
enum class SyntheticFp8 : uint8_t { by_token, by_tensor, by_block };

/// weights: what this program reads. folder: what other engines want too: the tensors of the vision
/// tower that config.json describes, declared inputs of all FP8 linears (per token), experts in FP8
/// with one scale per row. Both have the MTP layer that config.json promises, in BF16.
enum class SyntheticScope : uint8_t { weights, folder };

struct SyntheticOptions {
  WeightLayout layout = WeightLayout::mixed;
  uint64_t seed = 1;
  float embedding_deviation = 1.0F;   // linears: 1 / sqrt(columns)
  std::vector<std::string> zero;      // modules that end so have BF16 zeros for weights
  std::vector<std::string> declared;  // modules that end so declare their inputs too
  SyntheticFp8 fp8 = SyntheticFp8::by_token;
  SyntheticScope scope = SyntheticScope::weights;
  std::vector<std::pair<std::string, std::string>> files;  // files beside the weights: name, text
  int threads = 0;                                         // 0: one per usable core
};

/// `config` is a config.json; a quantization_config in it is replaced by that of the layout.
/// Errors: those of ModelConfig::parse and of writing.
Result<void> write_synthetic_checkpoint(const Json& config, const std::filesystem::path& output,
                                        const SyntheticOptions& options);

}  // namespace nibble
