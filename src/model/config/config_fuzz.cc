// Fuzz entry: one config.json. What parses must keep to the bounds the rest of the program relies
// on; any text either parses or is refused in one line.
#include "model/config/config.h"
#include "model/config/quant_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto json = nibble::parse_json(text, "fuzz");
  if (!json.ok()) return 0;
  const auto quantization = nibble::QuantConfig::parse(json.value(), &json.value());
  if (quantization.ok()) (void)quantization.value().find("model.layers.0.mlp.experts.3.up_proj");
  const auto config = nibble::ModelConfig::parse(json.value());
  if (!config.ok()) {
    CHECK(config.error().message.find('\n') == std::string::npos, config.error().message);
    return 0;
  }
  const nibble::ModelConfig& c = config.value();
  CHECK(c.hidden >= 16 && c.hidden <= 65536, c.hidden);
  CHECK(!c.layers.empty() && c.layer_count() <= 1024, c.layer_count());
  CHECK(c.attention.q_heads % c.attention.kv_heads == 0, c.attention.kv_heads);
  CHECK(c.attention.rope.rotary_dims <= c.attention.head_dim, c.attention.rope.rotary_dims);
  CHECK(!c.moe || c.moe->top_k <= c.moe->experts, "top-k");
  const auto vision = nibble::VisionConfig::parse(json.value(), c.hidden, c.vocab_rows);
  if (!vision.ok()) {
    CHECK(vision.error().message.find('\n') == std::string::npos, vision.error().message);
  } else if (vision.value()) {
    CHECK(vision.value()->head_dim() % 4 == 0, vision.value()->head_dim());
    CHECK(vision.value()->image_token < c.vocab_rows, vision.value()->image_token);
  }
  return 0;
}
