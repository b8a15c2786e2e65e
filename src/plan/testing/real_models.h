// For tests: the shapes of the published models.
#pragma once

#include <string>

#include "model/config/config.h"
#include "testing/published_config.h"

namespace nibble {

/// A config of tests/golden/configs by its name without ".json".
inline ModelConfig real_config(const std::string& name) {
  return ModelConfig::parse(published_config(name)).value();
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

}  // namespace nibble
