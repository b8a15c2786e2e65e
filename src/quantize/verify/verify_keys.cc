// Checks which tensors and files exist: against the model, the config, and what people need.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include "quantize/recipe/model_linears.h"
#include "quantize/verify/verify_checks.h"

namespace nibble {

namespace {

void add_vector(const VectorSource& vector, std::set<std::string>& names) {
  if (vector.present()) names.insert(vector.name);
}

/// Names of all tensors that the text model reads. Fused linears are listed by model_linears.h.
std::set<std::string> bound_names(const Weights& weights) {
  std::set<std::string> names = {weights.embedding().values, weights.final_norm().name};
  const auto add_linear = [&](const LinearSource& linear) {
    for (const auto* name :
         {&linear.values, &linear.scales, &linear.global_scale, &linear.input_scale}) {
      names.insert(*name);
    }
    // Files of weight-only schemes may still carry the scales of activations.
    names.insert(linear.module + ".input_scale");
    names.insert(linear.module + ".input_global_scale");
    names.insert(linear.module + ".k_scale");
    names.insert(linear.module + ".v_scale");
  };
  for (const auto& group : fused_linears(weights)) {
    for (const LinearSource* linear : group) add_linear(*linear);
  }
  add_linear(weights.embedding());
  for (const LayerSources& layer : weights.layers()) {
    add_vector(layer.input_norm, names);
    add_vector(layer.post_norm, names);
    add_vector(layer.attention.q_norm, names);
    add_vector(layer.attention.k_norm, names);
    add_vector(layer.delta_net.conv, names);
    add_vector(layer.delta_net.a_log, names);
    add_vector(layer.delta_net.dt_bias, names);
    add_vector(layer.delta_net.norm, names);
  }
  return names;
}

/// Compares the bytes of two tensors of the same size.
Result<bool> same_bytes(const Checkpoint& checkpoint, const TensorEntry& a, const TensorEntry& b) {
  constexpr int64_t kChunkBytes = int64_t{1} << 20;
  Buffer one(kChunkBytes);
  Buffer two(kChunkBytes);
  for (int64_t at = 0; at < a.bytes; at += kChunkBytes) {
    const auto size = static_cast<size_t>(std::min(kChunkBytes, a.bytes - at));
    TRY(checkpoint.read_bytes(a, at, one.span().first(size)));
    TRY(checkpoint.read_bytes(b, at, two.span().first(size)));
    if (std::memcmp(one.data(), two.data(), size) != 0) return false;
  }
  return true;
}

bool file_exists(const std::filesystem::path& path) {
  std::error_code failure;
  return std::filesystem::exists(path, failure);
}

}  // namespace

void check_key_set(const VerifySubject& subject, const Weights& weights, Findings& findings) {
  const std::set<std::string> bound = bound_names(weights);
  int64_t strangers = 0;
  std::string first;
  bool has_vision = false;
  bool has_mtp = false;
  for (const TensorEntry& entry : subject.checkpoint.entries()) {
    const ModuleKind kind = module_kind(entry.name);
    has_vision |= kind == ModuleKind::vision;
    has_mtp |= kind == ModuleKind::mtp;
    if (kind == ModuleKind::vision || kind == ModuleKind::mtp || bound.contains(entry.name) ||
        entry.name.ends_with("attn.k_scale") || entry.name.ends_with("attn.v_scale")) {
      continue;
    }
    if (strangers++ == 0) first = entry.name;
  }
  if (strangers > 0) {
    findings.push_back({Severity::warning, first,
                        concat("one of ", strangers, " tensors that the model does not use")});
  }
  const Json& config = subject.checkpoint.config();
  if (config.find("vision_config") != nullptr && !has_vision) {
    findings.push_back(
        {Severity::warning, "config.json",
         "promises a vision tower (vision_config), but there are no visual tensors"});
  }
  const Json* text = config.find("text_config");
  const Json* layers = (text == nullptr ? config : *text).find("mtp_num_hidden_layers");
  if (layers != nullptr && layers->is_int() && layers->as_int() > 0 && !has_mtp) {
    findings.push_back({Severity::warning, "config.json",
                        "promises an MTP head (mtp_num_hidden_layers), but there are no mtp "
                        "tensors; drafting will not work"});
  }
}

Result<void> check_tied_head(const Checkpoint& checkpoint, const ModelConfig& config,
                             const Weights& weights, Findings& findings) {
  if (!config.tied_head || weights.head().values == weights.embedding().values) return {};
  const TensorEntry* head = checkpoint.find(weights.head().values);
  const TensorEntry* embedding = checkpoint.find(weights.embedding().values);
  CHECK(head != nullptr && embedding != nullptr, "bound tensors are gone");
  const bool alike = head->dtype == embedding->dtype && head->bytes == embedding->bytes;
  if (alike && TRY(same_bytes(checkpoint, *head, *embedding))) return {};
  findings.push_back({Severity::warning, head->name,
                      "differs from the embedding that config.json ties it to "
                      "(tie_word_embeddings); engines disagree which one counts"});
  return {};
}

void check_companions(const Checkpoint& checkpoint, Findings& findings) {
  const auto& folder = checkpoint.folder();
  const auto warn = [&](std::string file, std::string text) {
    findings.push_back({Severity::warning, std::move(file), std::move(text)});
  };
  if (!file_exists(folder / "tokenizer.json")) {
    warn("tokenizer.json", "is missing: the model can score ids, but not read text");
    return;
  }
  if (!file_exists(folder / "tokenizer_config.json")) {
    warn("tokenizer_config.json", "is missing: other engines want it beside tokenizer.json");
  }
}

}  // namespace nibble
