// For tests: the shapes of the published models, and what their weights take.
#pragma once

#include <string>

#include "base/file.h"
#include "base/json.h"
#include "model/config.h"
#include "model/synthetic_weights.h"

namespace nibble {

/// A config of tests/golden/configs by its name without ".json".
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
  const int64_t experts = config.moe ? config.moe->experts : 1;
  ModelConfig one = config;  // of the experts, each of which has a row of the router
  if (one.moe) one.moe->experts = 1;
  const SyntheticWeights weights = synthetic_weights(one, formats_of(layout));
  int64_t bytes = stored_bytes(weights.embedding);
  if (!config.tied_head) bytes += stored_bytes(weights.head);
  const auto sum = [](std::initializer_list<const LinearSource*> linears) {
    int64_t total = 0;
    for (const LinearSource* linear : linears) total += stored_bytes(*linear);
    return total;
  };
  const auto mlp = [&](const MlpSources& m) { return sum({&m.gate, &m.up, &m.down}); };
  for (const LayerSources& layer : weights.layers) {
    const AttentionSources& a = layer.attention;
    const DeltaNetSources& d = layer.delta_net;
    bytes += sum({&a.q, &a.k, &a.v, &a.o, &d.qkv, &d.z, &d.b, &d.a, &d.out});
    bytes += mlp(layer.dense_mlp) + mlp(layer.moe.shared) + sum({&layer.moe.shared_gate});
    for (const MlpSources& expert : layer.moe.experts)
      bytes += experts * (mlp(expert) + sum({&layer.moe.router}));
  }
  return bytes;
}

}  // namespace nibble
