// Names and shapes, role by role; weights.cc binds the same ones.
#include "model/weights/synthetic_weights.h"

#include <array>
#include <memory>

#include "model/config/quant_config.h"
#include "model/config/target_patterns.h"
#include "model/weights/draft_places.h"

namespace nibble {
namespace {

constexpr std::array kLayouts = {WeightLayout::mixed, WeightLayout::mixed_nvfp4_head,
                                 WeightLayout::nvfp4, WeightLayout::w4a4,
                                 WeightLayout::fp8,   WeightLayout::bf16};

WeightFormat head_format(WeightLayout layout) {
  switch (layout) {
    case WeightLayout::mixed:
      return WeightFormat::fp8_channel;
    case WeightLayout::mixed_nvfp4_head:
    case WeightLayout::nvfp4:
      return WeightFormat::nvfp4;
    case WeightLayout::fp8:
      return WeightFormat::fp8_tensor;
    case WeightLayout::w4a4:
    case WeightLayout::bf16:
      return WeightFormat::plain;
  }
  return WeightFormat::plain;
}

bool is_expert_or_mlp(std::string_view module) {
  return module.ends_with("_proj") && module.find(".mlp.") != std::string_view::npos;
}
bool is_delta_projection(std::string_view module) {
  return module.ends_with(".in_proj_qkv") || module.ends_with(".in_proj_z") ||
         module.ends_with(".linear_attn.out_proj");
}

class Namer {
 public:
  Namer(const ModelConfig& config, const FormatOf& formats) : config_(config), formats_(formats) {}

  LinearSource linear(std::string module, int64_t rows, int64_t cols) const {
    const WeightFormat format = formats_(module);
    return stored_linear(std::move(module), rows, cols, format);
  }
  LayerSources layer(const std::string& name, LayerKind kind) const;
  MtpSources mtp() const;

 private:
  AttentionSources attention(const std::string& module) const;
  DeltaNetSources delta_net(const std::string& module) const;
  MlpSources mlp(const std::string& module, int64_t width) const {
    return {.gate = linear(module + ".gate_proj", width, config_.hidden),
            .up = linear(module + ".up_proj", width, config_.hidden),
            .down = linear(module + ".down_proj", config_.hidden, width)};
  }
  const ModelConfig& config_;
  const FormatOf& formats_;
};

AttentionSources Namer::attention(const std::string& module) const {
  const AttentionConfig& a = config_.attention;
  const int64_t q = int64_t{a.q_heads} * a.head_dim;
  const int64_t kv = int64_t{a.kv_heads} * a.head_dim;
  return {.q = linear(module + ".q_proj", a.output_gate ? 2 * q : q, config_.hidden),
          .k = linear(module + ".k_proj", kv, config_.hidden),
          .v = linear(module + ".v_proj", kv, config_.hidden),
          .o = linear(module + ".o_proj", config_.hidden, q),
          .q_norm = {.name = module + ".q_norm.weight", .shape = {a.head_dim}},
          .k_norm = {.name = module + ".k_norm.weight", .shape = {a.head_dim}}};
}

DeltaNetSources Namer::delta_net(const std::string& module) const {
  const DeltaNetConfig& d = config_.delta_net;
  return {.qkv = linear(module + ".in_proj_qkv", d.qkv_rows(), config_.hidden),
          .z = linear(module + ".in_proj_z", d.z_rows(), config_.hidden),
          .b = linear(module + ".in_proj_b", d.v_heads, config_.hidden),
          .a = linear(module + ".in_proj_a", d.v_heads, config_.hidden),
          .out = linear(module + ".out_proj", config_.hidden, d.z_rows()),
          .conv = {.name = module + ".conv1d.weight", .shape = {d.qkv_rows(), 1, d.conv_kernel}},
          .a_log = {.name = module + ".A_log", .shape = {d.v_heads}},
          .dt_bias = {.name = module + ".dt_bias", .shape = {d.v_heads}},
          .norm = {.name = module + ".norm.weight", .shape = {d.v_dim}}};
}

LayerSources Namer::layer(const std::string& name, LayerKind kind) const {
  LayerSources sources;
  sources.input_norm = {.name = name + ".input_layernorm.weight", .shape = {config_.hidden}};
  sources.post_norm = {.name = name + ".post_attention_layernorm.weight",
                       .shape = {config_.hidden}};
  if (kind == LayerKind::attention) {
    sources.attention = attention(name + ".self_attn");
  } else {
    sources.delta_net = delta_net(name + ".linear_attn");
  }
  if (!config_.moe) {
    sources.dense_mlp = mlp(name + ".mlp", config_.dense_width);
    return sources;
  }
  const MoeConfig& m = *config_.moe;
  sources.moe.router = linear(name + ".mlp.gate", m.experts, config_.hidden);
  for (int e = 0; e < m.experts; ++e)
    sources.moe.experts.push_back(mlp(concat(name, ".mlp.experts.", e), m.expert_width));
  if (m.shared_width == 0) return sources;
  sources.moe.shared = mlp(name + ".mlp.shared_expert", m.shared_width);
  sources.moe.shared_gate = linear(name + ".mlp.shared_expert_gate", 1, config_.hidden);
  return sources;
}

MtpSources Namer::mtp() const {
  const auto norm = [&](const char* name) {
    return VectorSource{.name = name, .shape = {config_.hidden}};
  };
  return {.embedding_norm = norm("mtp.pre_fc_norm_embedding.weight"),
          .hidden_norm = norm("mtp.pre_fc_norm_hidden.weight"),
          .joined = linear("mtp.fc", config_.hidden, 2 * int64_t{config_.hidden}),
          .layer = layer("mtp.layers.0", LayerKind::attention),
          .norm = norm("mtp.norm.weight")};
}

}  // namespace

std::string_view weight_layout_name(WeightLayout layout) {
  switch (layout) {
    case WeightLayout::mixed:
      return "mixed";
    case WeightLayout::mixed_nvfp4_head:
      return "mixed-nvfp4-head";
    case WeightLayout::nvfp4:
      return "nvfp4";
    case WeightLayout::w4a4:
      return "w4a4";
    case WeightLayout::fp8:
      return "fp8";
    case WeightLayout::bf16:
      return "bf16";
  }
  return "";
}

Result<WeightLayout> parse_weight_layout(std::string_view name) {
  for (const WeightLayout layout : kLayouts)
    if (weight_layout_name(layout) == name) return layout;
  return make_error(ErrorCode::invalid_argument,
                    {.what = "layout of weights",
                     .expected = "mixed, mixed-nvfp4-head, nvfp4, w4a4, fp8 or bf16",
                     .found = name});
}

FormatOf formats_of(WeightLayout layout) {
  return [layout](std::string_view module) {
    const bool eight = layout == WeightLayout::fp8;
    const bool mixed =
        eight || layout == WeightLayout::mixed || layout == WeightLayout::mixed_nvfp4_head;
    if (is_mtp(module)) return WeightFormat::plain;  // as all published files have it
    if (layout == WeightLayout::bf16) return WeightFormat::plain;
    if (module == "lm_head") return head_format(layout);
    if (is_expert_or_mlp(module)) return eight ? WeightFormat::fp8_tensor : WeightFormat::nvfp4;
    if (module.find(".self_attn.") != std::string_view::npos)
      return mixed ? WeightFormat::fp8_tensor : WeightFormat::nvfp4;
    return mixed && is_delta_projection(module) ? WeightFormat::fp8_tensor : WeightFormat::plain;
  };
}

Result<FormatOf> declared_formats(const Json& config) {
  auto declared = std::make_shared<QuantConfig>(TRY(QuantConfig::parse(config, nullptr)));
  return FormatOf([declared](std::string_view module) {
    const DeclaredScheme* scheme = declared->find(module);
    return scheme == nullptr          ? WeightFormat::plain
           : scheme->weight_bits == 4 ? WeightFormat::nvfp4
           : scheme->scale_of_rows    ? WeightFormat::fp8_channel
                                      : WeightFormat::fp8_tensor;
  });
}

LinearSource stored_linear(std::string module, int64_t rows, int64_t cols, WeightFormat format) {
  LinearSource source{.module = std::move(module), .rows = rows, .cols = cols};
  source.scheme.weights = format;
  const bool packed = format == WeightFormat::nvfp4;
  source.values = source.module + (packed ? ".weight_packed" : ".weight");
  if (format != WeightFormat::plain) source.scales = source.module + ".weight_scale";
  if (packed) {
    source.global_scale = source.module + ".weight_global_scale";
    source.direction = GlobalScale::Direction::divide;
  }
  return source;
}

SyntheticWeights synthetic_weights(const ModelConfig& config, const FormatOf& formats) {
  const Namer namer(config, formats);
  SyntheticWeights weights;
  const std::string& prefix = config.tensor_prefix;
  weights.embedding = namer.linear(prefix + "embed_tokens", config.vocab_rows, config.hidden);
  weights.head = config.tied_head ? weights.embedding
                                  : namer.linear("lm_head", config.vocab_rows, config.hidden);
  weights.final_norm = {.name = prefix + "norm.weight", .shape = {config.hidden}};
  for (int i = 0; i < config.layer_count(); ++i)
    weights.layers.push_back(
        namer.layer(concat(prefix, "layers.", i), config.layers[static_cast<size_t>(i)]));
  if (config.draft_layers > 0) weights.mtp = draft_places(namer.mtp(), weights.head, config);
  if (config.vision) weights.vision = plain_vision(*config.vision);
  return weights;
}

}  // namespace nibble
