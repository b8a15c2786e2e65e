// Binds the tensors of every layer to their roles. How one linear is stored: linear_binding.cc.
// Reading them: weights_load.cc.
#include "model/weights/weights.h"

#include <array>

#include "model/config/quant_config.h"
#include "model/weights/linear_binding.h"
#include "model/weights/synthetic_weights.h"

namespace nibble {
namespace {

constexpr std::array kPlainTypes = {DType::bf16, DType::f32, DType::f16};

/// Binds the layers of one model under one name prefix.
class LayerBinder {
 public:
  LayerBinder(const Checkpoint& checkpoint, const ModelConfig& config, const LinearBinder& linears)
      : checkpoint_(checkpoint), config_(config), linears_(linears) {}

  Result<LayerSources> bind(const std::string& layer, LayerKind kind) const;

 private:
  Result<AttentionSources> attention(const std::string& module) const;
  Result<DeltaNetSources> delta_net(const std::string& module) const;
  Result<MlpSources> mlp(const std::string& module, int64_t width) const;
  Result<MoeSources> moe(const std::string& module) const;
  Result<std::vector<MlpSources>> experts(const std::string& module) const;
  Result<std::vector<MlpSources>> fused_experts(const std::string& module) const;

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const LinearBinder& linears_;
};

Result<LayerSources> LayerBinder::bind(const std::string& layer, LayerKind kind) const {
  LayerSources sources;
  const Shape hidden = {config_.hidden};
  sources.input_norm = TRY(linears_.bind_vector(layer + ".input_layernorm.weight", hidden));
  sources.post_norm = TRY(linears_.bind_vector(layer + ".post_attention_layernorm.weight", hidden));
  if (kind == LayerKind::attention) {
    sources.attention = TRY(attention(layer + ".self_attn"));
  } else {
    sources.delta_net = TRY(delta_net(layer + ".linear_attn"));
  }
  if (config_.moe) {
    sources.moe = TRY(moe(layer + ".mlp"));
  } else {
    sources.dense_mlp = TRY(mlp(layer + ".mlp", config_.dense_width));
  }
  return sources;
}

Result<AttentionSources> LayerBinder::attention(const std::string& module) const {
  const AttentionConfig& a = config_.attention;
  const int64_t hidden = config_.hidden;
  const int64_t q_rows = int64_t{a.q_heads} * a.head_dim;
  const int64_t kv_rows = int64_t{a.kv_heads} * a.head_dim;
  AttentionSources sources;
  sources.q = TRY(linears_.bind({module + ".q_proj", a.output_gate ? 2 * q_rows : q_rows, hidden}));
  sources.k = TRY(linears_.bind({module + ".k_proj", kv_rows, hidden}));
  sources.v = TRY(linears_.bind({module + ".v_proj", kv_rows, hidden}));
  sources.o = TRY(linears_.bind({module + ".o_proj", hidden, q_rows}));
  sources.q_norm = TRY(linears_.bind_vector(module + ".q_norm.weight", {a.head_dim}));
  sources.k_norm = TRY(linears_.bind_vector(module + ".k_norm.weight", {a.head_dim}));
  return sources;
}

Result<DeltaNetSources> LayerBinder::delta_net(const std::string& module) const {
  const DeltaNetConfig& d = config_.delta_net;
  const int64_t hidden = config_.hidden;
  DeltaNetSources sources;
  sources.qkv = TRY(linears_.bind({module + ".in_proj_qkv", d.qkv_rows(), hidden}));
  sources.z = TRY(linears_.bind({module + ".in_proj_z", d.z_rows(), hidden}));
  sources.b = TRY(linears_.bind({module + ".in_proj_b", d.v_heads, hidden}));
  sources.a = TRY(linears_.bind({module + ".in_proj_a", d.v_heads, hidden}));
  sources.out = TRY(linears_.bind({module + ".out_proj", hidden, d.z_rows()}));
  sources.conv =
      TRY(linears_.bind_vector(module + ".conv1d.weight", {d.qkv_rows(), 1, d.conv_kernel}));
  sources.a_log = TRY(linears_.bind_vector(module + ".A_log", {d.v_heads}));
  sources.dt_bias = TRY(linears_.bind_vector(module + ".dt_bias", {d.v_heads}));
  sources.norm = TRY(linears_.bind_vector(module + ".norm.weight", {d.v_dim}));
  return sources;
}

Result<MlpSources> LayerBinder::mlp(const std::string& module, int64_t width) const {
  MlpSources sources;
  sources.gate = TRY(linears_.bind({module + ".gate_proj", width, config_.hidden}));
  sources.up = TRY(linears_.bind({module + ".up_proj", width, config_.hidden}));
  sources.down = TRY(linears_.bind({module + ".down_proj", config_.hidden, width}));
  return sources;
}

Result<MoeSources> LayerBinder::moe(const std::string& module) const {
  const MoeConfig& m = *config_.moe;
  MoeSources sources;
  sources.router = TRY(linears_.bind({module + ".gate", m.experts, config_.hidden}));
  sources.experts = TRY(experts(module + ".experts"));
  if (m.shared_width == 0) return sources;
  sources.shared = TRY(mlp(module + ".shared_expert", m.shared_width));
  sources.shared_gate = TRY(linears_.bind({module + ".shared_expert_gate", 1, config_.hidden}));
  return sources;
}

Result<std::vector<MlpSources>> LayerBinder::experts(const std::string& module) const {
  const bool fused = checkpoint_.find(module + ".gate_up_proj") != nullptr;
  const bool separate = linears_.has(module + ".0.gate_proj");
  if (fused && separate)
    return make_error(ErrorCode::corrupt, {.what = module,
                                           .expected = "fused or separate experts",
                                           .found = "both gate_up_proj and 0.gate_proj"});
  if (fused) return fused_experts(module);
  if (!separate)
    return make_error(ErrorCode::not_found, {.what = module,
                                             .expected = "gate_up_proj and down_proj (fused) or "
                                                         "0.gate_proj.weight (one per expert)",
                                             .found = "neither"});
  std::vector<MlpSources> sources;
  for (int e = 0; e < config_.moe->experts; ++e)
    sources.push_back(TRY(mlp(concat(module, ".", e), config_.moe->expert_width)));
  return sources;
}

/// gate_up_proj [E, 2F, H], rows gate then up; down_proj [E, H, F]. No ".weight" in the names.
Result<std::vector<MlpSources>> LayerBinder::fused_experts(const std::string& module) const {
  const int64_t width = config_.moe->expert_width;
  const int64_t hidden = config_.hidden;
  const int64_t count = config_.moe->experts;
  const std::string gate_up = module + ".gate_up_proj";
  const std::string down = module + ".down_proj";
  TRY(checkpoint_.expect(gate_up, kPlainTypes, {count, 2 * width, hidden}));
  TRY(checkpoint_.expect(down, kPlainTypes, {count, hidden, width}));
  std::vector<MlpSources> sources;
  for (int64_t e = 0; e < count; ++e) {
    const std::string expert = concat(module, ".", e);
    MlpSources parts;
    parts.gate = {.module = expert + ".gate_proj",
                  .rows = width,
                  .cols = hidden,
                  .values = gate_up,
                  .row_begin = 2 * width * e};
    parts.up = {.module = expert + ".up_proj",
                .rows = width,
                .cols = hidden,
                .values = gate_up,
                .row_begin = 2 * width * e + width};
    parts.down = {.module = expert + ".down_proj",
                  .rows = hidden,
                  .cols = width,
                  .values = down,
                  .row_begin = hidden * e};
    sources.push_back(std::move(parts));
  }
  return sources;
}

Result<MtpSources> bind_mtp(const ModelConfig& config, const LinearBinder& linears,
                            const LayerBinder& layers) {
  if (config.mtp_layers != 1)
    return make_error(ErrorCode::unsupported, {.what = "drafts of an MTP head",
                                               .expected = "mtp_num_hidden_layers 1",
                                               .found = concat(config.mtp_layers)});
  const Shape hidden = {config.hidden};
  MtpSources sources;
  sources.embedding_norm = TRY(linears.bind_vector("mtp.pre_fc_norm_embedding.weight", hidden));
  sources.hidden_norm = TRY(linears.bind_vector("mtp.pre_fc_norm_hidden.weight", hidden));
  sources.joined = TRY(linears.bind({"mtp.fc", config.hidden, 2 * int64_t{config.hidden}}));
  sources.layer = TRY(layers.bind("mtp.layers.0", LayerKind::attention));
  sources.norm = TRY(linears.bind_vector("mtp.norm.weight", hidden));
  return sources;
}

Result<VisionSources> bind_vision(const Checkpoint& checkpoint, const VisionConfig& vision,
                                  const LinearBinder& linears) {
  const std::string prefix = vision_prefix(checkpoint);
  return name_vision(
      vision, prefix.empty() ? "model.visual." : prefix,
      {.linear =
           [&](const std::string& module, int64_t rows, int64_t cols) {
             return linears.bind({module, rows, cols, LinearKind::biased});
           },
       .vector = [&](const std::string& name,
                     const Shape& shape) { return linears.bind_vector(name, shape); }});
}

/// The prefix of the text model's names in this file: the family's own, or the other known one.
Result<std::string> find_prefix(const Checkpoint& checkpoint, const ModelConfig& config) {
  for (const std::string& prefix :
       {config.tensor_prefix, std::string("model.language_model."), std::string("model.")})
    if (checkpoint.find(prefix + "norm.weight") != nullptr) return prefix;
  return make_error(ErrorCode::not_found,
                    {.what = config.tensor_prefix + "norm.weight",
                     .expected = concat("[", config.hidden, "]"),
                     .found = checkpoint.entries().empty()
                                  ? std::string("no tensors at all")
                                  : concat("names like ", checkpoint.entries().front().name),
                     .advice = "only Hugging Face names are known"});
}

}  // namespace

std::string vision_prefix(const Checkpoint& checkpoint) {
  for (const char* prefix : {"model.visual.", "visual."})
    for (const TensorEntry& entry : checkpoint.entries())
      if (entry.name.starts_with(prefix)) return prefix;
  return "";
}

Result<Weights> Weights::bind(const Checkpoint& checkpoint, const ModelConfig& config) {
  const QuantConfig quantization = TRY(QuantConfig::read(checkpoint));
  const LinearBinder linears(checkpoint, quantization);
  const LayerBinder layers(checkpoint, config, linears);
  const std::string prefix = TRY(find_prefix(checkpoint, config));
  Weights weights;
  weights.tensors_ = &checkpoint;
  weights.embedding_ =
      TRY(linears.bind({prefix + "embed_tokens", config.vocab_rows, config.hidden}));
  // A tied checkpoint may still carry a head of its own, for example a quantized one.
  weights.head_ = weights.embedding_;
  if (!config.tied_head || linears.has("lm_head"))
    weights.head_ = TRY(linears.bind({"lm_head", config.vocab_rows, config.hidden}));
  weights.final_norm_ = TRY(linears.bind_vector(prefix + "norm.weight", {config.hidden}));
  for (int i = 0; i < config.layer_count(); ++i) {
    const LayerKind kind = config.layers[static_cast<size_t>(i)];
    weights.layers_.push_back(TRY(layers.bind(concat(prefix, "layers.", i), kind)));
  }
  if (config.draft_layers > 0) weights.mtp_ = TRY(bind_mtp(config, linears, layers));
  if (config.vision) weights.vision_ = TRY(bind_vision(checkpoint, *config.vision, linears));
  return weights;
}

Weights Weights::made_up(const TensorSource& tensors, SyntheticWeights places) {
  Weights weights;
  weights.tensors_ = &tensors;
  weights.embedding_ = std::move(places.embedding);
  weights.head_ = std::move(places.head);
  weights.final_norm_ = std::move(places.final_norm);
  weights.layers_ = std::move(places.layers);
  weights.mtp_ = std::move(places.mtp);
  weights.vision_ = std::move(places.vision);
  return weights;
}

Weights Weights::only(int layer) const {
  Weights part;
  part.tensors_ = tensors_;
  part.final_norm_ = final_norm_;
  part.layers_ = {layers_[static_cast<size_t>(layer)]};
  return part;
}

}  // namespace nibble
