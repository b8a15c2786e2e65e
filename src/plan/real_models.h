// For tests: the shapes of the published models, and what their weights take.
#pragma once

#include <string>

#include "base/file.h"
#include "base/json.h"
#include "model/config.h"
#include "model/synthetic_weights.h"

namespace nibble {

/// Of tests/golden/configs, by its name without ".json".
inline ModelConfig real_config(const std::string& name) {
  const std::string path = concat(NIBBLE_SOURCE_DIR "/tests/golden/configs/", name, ".json");
  const std::string text = read_text_file(path, uint64_t{1} << 20).value();
  return ModelConfig::parse(parse_json(text, path).value()).value();
}

/// Qwen3.5-0.8B, whose shape differs from that of the 4B by these numbers.
inline ModelConfig smallest_config() {
  ModelConfig config = real_config("qwen3.5-4b");
  config.layers.resize(24);
  config.hidden = 1024;
  config.dense_width = 3584;
  config.attention.q_heads = 8;
  config.attention.kv_heads = 2;
  config.delta_net.v_heads = 16;
  return config;
}

inline int64_t stored_bytes(const LinearSource& linear) {
  const int64_t count = linear.rows * linear.cols;
  switch (linear.scheme.weights) {
    case WeightFormat::plain:
      return 2 * count;
    case WeightFormat::nvfp4:
      return count / 2 + count / 16;
    default:
      return count;
  }
}

/// Bytes of all matrices in a layout. The vectors beside them are less than a thousandth.
inline int64_t matrix_bytes(const ModelConfig& config, WeightLayout layout) {
  const SyntheticWeights weights = synthetic_weights(config, formats_of(layout));
  int64_t bytes = stored_bytes(weights.embedding);
  if (!config.tied_head) bytes += stored_bytes(weights.head);
  const auto add = [&](std::initializer_list<const LinearSource*> linears) {
    for (const LinearSource* linear : linears) bytes += stored_bytes(*linear);
  };
  const auto add_mlp = [&](const MlpSources& mlp) { add({&mlp.gate, &mlp.up, &mlp.down}); };
  for (const LayerSources& layer : weights.layers) {
    const AttentionSources& a = layer.attention;
    add({&a.q, &a.k, &a.v, &a.o});
    const DeltaNetSources& d = layer.delta_net;
    add({&d.qkv, &d.z, &d.b, &d.a, &d.out});
    add_mlp(layer.dense_mlp);
    add({&layer.moe.router, &layer.moe.shared_gate});
    add_mlp(layer.moe.shared);
    for (const MlpSources& expert : layer.moe.experts) add_mlp(expert);
  }
  return bytes;
}

}  // namespace nibble
