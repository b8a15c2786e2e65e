// ModelConfig: the typed facts of config.json. Each is read *required*, *default* or *must equal*;
// a key that matters and is not understood is refused by name. Source: docs/formats.md, config.cc.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "model/config/vision_config.h"
#include "tensor/quant_scheme.h"

namespace nibble {

enum class Architecture : uint8_t {
  qwen3_5_moe,  // Qwen3_5MoeForConditionalGeneration
  qwen3_5,      // Qwen3_5ForConditionalGeneration (dense)
  qwen3_moe,    // Qwen3MoeForCausalLM
};

enum class LayerKind : uint8_t { attention, delta_net };

/// y = x * rsqrt(mean(x^2) + eps) * (1 + w) for zero_centred, * w for plain.
enum class NormKind : uint8_t { zero_centred, plain };

struct YarnConfig {
  double factor = 1.0;
  double original_max_positions = 0.0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  double attention_factor = 1.0;  // multiplies cos and sin
  bool truncate = true;           // round the correction range to whole dimensions
  /// The longest sequence: `factor` times the original length, whatever max_position_embeddings is.
  int64_t max_positions() const { return static_cast<int64_t>(factor * original_max_positions); }
};

struct RopeConfig {
  double theta = 1e7;
  int rotary_dims = 0;  // dimensions that rotate; the rest of head_dim passes through
  /// Frequencies that take their angle from the (t, h, w) position; all zero when not multi-axis.
  std::array<int, 3> mrope_section = {};
  std::optional<YarnConfig> yarn;
  std::string notice;  // one line about a key that was not taken, or empty
};

struct AttentionConfig {
  int q_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  bool output_gate = false;  // q_proj rows are per head [q | gate]
  RopeConfig rope;
};

struct DeltaNetConfig {
  int k_heads = 0;
  int v_heads = 0;
  int k_dim = 0;  // size of one head
  int v_dim = 0;
  int conv_kernel = 4;
  int qkv_rows() const { return 2 * k_heads * k_dim + v_heads * v_dim; }
  int z_rows() const { return v_heads * v_dim; }
  /// Numbers of one row that a replay needs: qkv before the convolution, two gates of each head.
  int saved_numbers() const { return qkv_rows() + 2 * v_heads; }
};

struct MoeConfig {
  int experts = 0;
  int top_k = 0;
  int expert_width = 0;
  int shared_width = 0;     // 0: no shared expert
  bool renormalize = true;  // top-k weights sum to 1
};

struct ModelConfig {
  Architecture architecture = Architecture::qwen3_5_moe;
  int hidden = 0;
  int vocab_rows = 0;  // rows of the embedding; the tokenizer may know fewer ids
  float rms_eps = 1e-6F;
  NormKind norm = NormKind::zero_centred;
  std::vector<LayerKind> layers;
  AttentionConfig attention;
  DeltaNetConfig delta_net;      // meaningful if any layer is delta_net
  std::optional<MoeConfig> moe;  // absent: dense
  int dense_width = 0;           // meaningful if !moe
  int64_t max_positions = 0;     // positions of one sequence: max_position_embeddings, or YaRN's
  bool tied_head = false;
  int mtp_layers = 0;  // as config.json has it
  /// 1 if the MTP layer is loaded to draft tokens, else 0: the choice of who loads the model.
  int draft_layers = 0;
  /// The format that this layer's plain linears are rounded to as they are loaded, and the tokens
  /// that its head has rows for, in rising order; none: all. Choices as well
  /// (weights/draft_places.h).
  WeightFormat draft_format = WeightFormat::plain;
  std::vector<int32_t> draft_tokens;
  /// The vision tower if it is loaded, else nothing: likewise the choice of who loads the model, by
  /// what VisionConfig::parse says. parse() leaves it empty.
  std::optional<VisionConfig> vision;
  std::vector<int32_t> stop_ids;  // eos of config.json; generation_config.json adds its own
  std::string tensor_prefix;      // "model.language_model." or "model."

  int layer_count() const { return static_cast<int>(layers.size()); }
  /// Layers of one kind before `layer`: the index into that kind's cache pool.
  int kind_index(int layer) const;
  int count(LayerKind kind) const;
  /// Layers that keep keys and values in pages: those of attention, and last the one that drafts.
  int kv_layers() const { return count(LayerKind::attention) + draft_layers; }
  /// Numbers of the hidden row that a state slot carries for drafts; 0: none.
  int draft_row() const { return draft_layers > 0 ? hidden : 0; }
  /// Rows of the head that drafts are chosen with.
  int draft_head_rows() const {
    return draft_tokens.empty() ? vocab_rows : static_cast<int>(draft_tokens.size());
  }

  /// Reads a parsed config.json. Errors: unsupported (names the key), corrupt (wrong type or
  /// range).
  static Result<ModelConfig> parse(const Json& config);
};

}  // namespace nibble
