// config.json -> ModelConfig. Which key means what: docs/formats.md and transformers'
// configuration_qwen3_5(_moe).py, configuration_qwen3_moe.py. No tensor names but the prefix.
#include "model/config/config.h"

#include <algorithm>

#include "model/config/config_section.h"
#include "model/config/rope_config.h"

namespace nibble {
namespace {

constexpr IntRange kHiddenRange{16, 65536};
constexpr IntRange kLayerRange{1, 1024};
constexpr IntRange kHeadRange{1, 1024};
constexpr IntRange kHeadDimRange{2, 1024};
constexpr IntRange kWidthRange{1, 1 << 20};
constexpr IntRange kExpertRange{1, 4096};
constexpr IntRange kVocabRange{1, 1 << 19};  // their weights add up in 64 bits (token_choice.h)
constexpr IntRange kPositionRange{1, int64_t{1} << 30};
constexpr IntRange kTokenRange{0, (int64_t{1} << 31) - 1};

/// Qwen3.5/3.6 (`hybrid`) has delta-net layers, gated attention, (t, h, w) rotary positions, 1 + w
/// norms and, with experts, a shared one. Qwen3 MoE has none of these.
enum class Generation : uint8_t { hybrid, plain };
enum class Layout : uint8_t { nested, flat };  // text keys in text_config, or at the top

struct Family {
  std::string_view architecture;
  Architecture kind;
  Generation generation;
  Layout layout;
  bool hybrid() const { return generation == Generation::hybrid; }
};

constexpr Family kFamilies[] = {
    {"Qwen3_5MoeForConditionalGeneration", Architecture::qwen3_5_moe, Generation::hybrid,
     Layout::nested},
    {"Qwen3_5ForConditionalGeneration", Architecture::qwen3_5, Generation::hybrid, Layout::nested},
    {"Qwen3MoeForCausalLM", Architecture::qwen3_moe, Generation::plain, Layout::flat},
    {"Qwen3_5MoeForCausalLM", Architecture::qwen3_5_moe, Generation::hybrid, Layout::flat},
    {"Qwen3_5ForCausalLM", Architecture::qwen3_5, Generation::hybrid, Layout::flat},
};

Result<int> int_of(Result<int64_t> value) { return static_cast<int>(TRY(std::move(value))); }

Error not_divisible(const ConfigSection& section, std::string_view key, int value,
                    std::string_view by, int divisor) {
  return make_error(ErrorCode::corrupt, {.what = section.name(key),
                                         .expected = concat("a multiple of ", by, " ", divisor),
                                         .found = concat(value)});
}

Result<const Family*> parse_family(const ConfigSection& root) {
  const Json* names = root.find("architectures");
  if (names == nullptr) return root.missing("architectures", "a list with one class name");
  if (!names->is_array() || names->as_array().size() != 1 || !names->as_array()[0].is_string())
    return root.wrong("architectures", "a list with one class name", *names);
  const std::string& name = names->as_array()[0].as_string();
  std::string known;
  for (const auto& family : kFamilies) {
    if (family.architecture == name) return &family;
    known += concat(known.empty() ? "" : ", ", family.architecture);
  }
  return make_error(
      ErrorCode::unsupported,
      {.what = root.name("architectures"), .expected = concat("one of ", known), .found = name});
}

Result<LayerKind> parse_layer_kind(const ConfigSection& text, const Json& name,
                                   Generation generation) {
  const bool delta_net = generation == Generation::hybrid;
  if (name.is_string() && name.as_string() == "full_attention") return LayerKind::attention;
  if (delta_net && name.is_string() && name.as_string() == "linear_attention")
    return LayerKind::delta_net;
  Error error = text.wrong(
      "layer_types", delta_net ? "linear_attention or full_attention" : "full_attention", name);
  error.code = ErrorCode::unsupported;
  return error;
}

Result<std::vector<LayerKind>> parse_layers(const ConfigSection& text, Generation generation) {
  const auto count = static_cast<size_t>(TRY(text.integer("num_hidden_layers", kLayerRange)));
  std::vector<LayerKind> layers;
  if (const Json* types = text.find("layer_types"); types != nullptr) {
    if (!types->is_array() || types->as_array().size() != count)
      return text.wrong("layer_types", concat("a list of num_hidden_layers ", count), *types);
    for (const auto& name : types->as_array())
      layers.push_back(TRY(parse_layer_kind(text, name, generation)));
    return layers;
  }
  if (generation == Generation::plain) return std::vector<LayerKind>(count, LayerKind::attention);
  const auto interval =
      static_cast<size_t>(TRY(text.integer_or("full_attention_interval", 4, kLayerRange)));
  for (size_t i = 1; i <= count; ++i)
    layers.push_back(i % interval == 0 ? LayerKind::attention : LayerKind::delta_net);
  return layers;
}

/// The section that has the rotary settings: with the text model, or outside it in some older
/// files.
const ConfigSection& rope_home(const ConfigSection& root, const ConfigSection& text) {
  for (const std::string_view key : {"rope_parameters", "rope_scaling", "rope_theta"})
    if (text.has(key)) return text;
  return root;
}

Result<AttentionConfig> parse_attention(const ConfigSection& root, const ConfigSection& text,
                                        const Family& family, const ModelConfig& config) {
  AttentionConfig attention;
  attention.q_heads = TRY(int_of(text.integer("num_attention_heads", kHeadRange)));
  attention.kv_heads = TRY(int_of(text.integer("num_key_value_heads", kHeadRange)));
  if (attention.q_heads % attention.kv_heads != 0)
    return not_divisible(text, "num_attention_heads", attention.q_heads, "num_key_value_heads",
                         attention.kv_heads);
  if (!family.hybrid() && !text.has("head_dim") && config.hidden % attention.q_heads != 0)
    return not_divisible(text, "hidden_size", config.hidden, "num_attention_heads",
                         attention.q_heads);
  const int64_t head_dim_default = family.hybrid() ? 256 : config.hidden / attention.q_heads;
  attention.head_dim = TRY(int_of(text.integer_or("head_dim", head_dim_default, kHeadDimRange)));
  attention.output_gate = family.hybrid();
  constexpr std::string_view kGateReason = "the family fixes this gate";
  TRY(family.hybrid() ? text.must_be_true("attn_output_gate", kGateReason)
                      : text.must_be_false("attn_output_gate", kGateReason));
  attention.rope =
      TRY(parse_rope(rope_home(root, text), {.head_dim = attention.head_dim,
                                             .default_rotary_factor = family.hybrid() ? 0.25 : 1.0,
                                             .multi_axis = family.hybrid(),
                                             .max_positions = config.max_positions}));
  return attention;
}

Result<DeltaNetConfig> parse_delta_net(const ConfigSection& text) {
  DeltaNetConfig delta;
  delta.k_heads = TRY(int_of(text.integer("linear_num_key_heads", kHeadRange)));
  delta.v_heads = TRY(int_of(text.integer("linear_num_value_heads", kHeadRange)));
  if (delta.v_heads % delta.k_heads != 0)
    return not_divisible(text, "linear_num_value_heads", delta.v_heads, "linear_num_key_heads",
                         delta.k_heads);
  delta.k_dim = TRY(int_of(text.integer("linear_key_head_dim", kHeadDimRange)));
  delta.v_dim = TRY(int_of(text.integer("linear_value_head_dim", kHeadDimRange)));
  delta.conv_kernel = TRY(int_of(text.integer_or("linear_conv_kernel_dim", 4, {2, 8})));
  TRY(text.must_equal("mamba_ssm_dtype", "float32", "recurrent states are kept in F32"));
  const std::string gate = TRY(text.text_or("output_gate_type", "silu"));
  if (gate != "silu" && gate != "swish")  // two names of one function
    return text.must_equal("output_gate_type", "silu", "the delta-net gate is SiLU").error();
  return delta;
}

Result<MoeConfig> parse_moe(const ConfigSection& text, const Family& family) {
  MoeConfig moe;
  const std::string_view experts_key =
      text.has("num_experts") ? "num_experts" : "num_local_experts";
  moe.experts = TRY(int_of(text.integer(experts_key, kExpertRange)));
  moe.top_k = TRY(int_of(text.integer("num_experts_per_tok", {1, moe.experts})));
  moe.expert_width = TRY(int_of(text.integer("moe_intermediate_size", kWidthRange)));
  if (family.hybrid())
    moe.shared_width = TRY(int_of(text.integer("shared_expert_intermediate_size", kWidthRange)));
  moe.renormalize = TRY(text.boolean("norm_topk_prob")).value_or(family.hybrid());
  if (family.hybrid() && !moe.renormalize)
    return text.must_be_true("norm_topk_prob", "this family always renormalises").error();
  if (TRY(text.integer_or("decoder_sparse_step", 1, {0, 1024})) != 1)
    return make_error(ErrorCode::unsupported, {.what = text.name("decoder_sparse_step"),
                                               .expected = "1 (every layer routed)",
                                               .found = text.find("decoder_sparse_step")->dump()});
  if (!TRY(text.integers_or_none("mlp_only_layers", kTokenRange)).empty())
    return make_error(ErrorCode::unsupported, {.what = text.name("mlp_only_layers"),
                                               .expected = "[] (every layer routed)",
                                               .found = text.find("mlp_only_layers")->dump()});
  return moe;
}

/// Keys that would change the arithmetic if they had another value.
Result<void> check_fixed_keys(const ConfigSection& text) {
  TRY(text.must_equal("hidden_act", "silu", "no other activation is known"));
  TRY(text.must_be_false("attention_bias", "biases are not known in these families"));
  TRY(text.must_be_false("use_sliding_window", "attention is never windowed here"));
  TRY(text.must_be_false("mtp_use_dedicated_embeddings", "the draft head shares the model's"));
  return {};
}

/// eos_token_id of every level, each once, in file order.
Result<std::vector<int32_t>> parse_stop_ids(const ConfigSection& root, const ConfigSection& text) {
  std::vector<int32_t> ids;
  for (const ConfigSection* section : {&text, &root}) {
    for (const int64_t id : TRY(section->integers_or_none("eos_token_id", kTokenRange)))
      if (std::find(ids.begin(), ids.end(), id) == ids.end())
        ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

Result<ModelConfig> parse_text(const ConfigSection& root, const ConfigSection& text,
                               const Family& family) {
  ModelConfig config;
  config.architecture = family.kind;
  const bool nested = family.layout == Layout::nested;
  config.tensor_prefix = nested ? "model.language_model." : "model.";
  config.norm = family.hybrid() ? NormKind::zero_centred : NormKind::plain;
  TRY(check_fixed_keys(text));
  config.hidden = TRY(int_of(text.integer("hidden_size", kHiddenRange)));
  config.vocab_rows = TRY(int_of(text.integer("vocab_size", kVocabRange)));
  config.rms_eps = static_cast<float>(TRY(text.number_or("rms_norm_eps", 1e-6, {1e-12, 0.1})));
  config.max_positions = TRY(text.integer("max_position_embeddings", kPositionRange));
  config.layers = TRY(parse_layers(text, family.generation));
  config.attention = TRY(parse_attention(root, text, family, config));
  if (const auto& yarn = config.attention.rope.yarn)
    config.max_positions = std::min(yarn->max_positions(), kPositionRange.high);
  if (family.hybrid()) config.delta_net = TRY(parse_delta_net(text));
  const bool experts = family.kind != Architecture::qwen3_5;
  if (experts) config.moe = TRY(parse_moe(text, family));
  if (!experts) config.dense_width = TRY(int_of(text.integer("intermediate_size", kWidthRange)));
  config.mtp_layers = TRY(int_of(text.integer_or("mtp_num_hidden_layers", 0, {0, 8})));
  const bool inner_tie = TRY(text.boolean("tie_word_embeddings")).value_or(false);
  config.tied_head =
      TRY(root.boolean("tie_word_embeddings")).value_or(inner_tie);  // outer level wins
  config.stop_ids = TRY(parse_stop_ids(root, text));
  return config;
}

}  // namespace

Result<ModelConfig> ModelConfig::parse(const Json& config) {
  if (!config.is_object())
    return make_error(
        ErrorCode::corrupt,
        {.what = "config.json", .expected = "an object", .found = config.type_name()});
  const ConfigSection root(config, "config.json: ");
  const Family& family = *TRY(parse_family(root));
  if (family.layout == Layout::flat) return parse_text(root, root, family);
  const ConfigSection text = TRY(root.section("text_config"));
  return parse_text(root, text, family);
}

int ModelConfig::count(LayerKind kind) const {
  return static_cast<int>(std::count(layers.begin(), layers.end(), kind));
}

int ModelConfig::kind_index(int layer) const {
  CHECK(layer >= 0 && layer < layer_count(), "layer ", layer, " of ", layer_count());
  const LayerKind kind = layers[static_cast<size_t>(layer)];
  return static_cast<int>(std::count(layers.begin(), layers.begin() + layer, kind));
}

}  // namespace nibble
