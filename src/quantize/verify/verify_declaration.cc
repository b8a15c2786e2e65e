// The quantization_config against the tensors that are there.
#include <algorithm>
#include <set>

#include "model/config/target_patterns.h"
#include "quantize/verify/verify_checks.h"

namespace nibble {

namespace {

int weight_bits(const StoredModule& module) {
  return module.scheme.weights == WeightFormat::nvfp4 ? 4 : 8;
}

/// The name under which a stack of experts is declared.
std::string declared_name(const StoredModule& module) {
  const std::string_view name = module.name;
  for (const std::string_view stack : {".gate_up_proj", ".down_proj"}) {
    if (module.values->shape.rank() != 3 || !name.ends_with(stack)) continue;
    return concat(name.substr(0, name.size() - stack.size()), ".0.gate_proj");
  }
  return module.name;
}

void check_module(const VerifySubject& subject, const StoredModule& module, Findings& findings) {
  if (module.values == nullptr) {
    const TensorEntry* stray = module.scales != nullptr         ? module.scales
                               : module.global_scale != nullptr ? module.global_scale
                                                                : module.input_scale;
    if (stray == nullptr) return;  // KV scales, biases
    findings.push_back({Severity::error, stray->name, "a scale without its weight"});
    return;
  }
  if (!module.is_linear()) return;
  const DeclaredScheme* declared = subject.declared.find(declared_name(module));
  if (!module.quantized()) {
    if (declared == nullptr) return;
    findings.push_back({Severity::error, module.values->name,
                        concat("is ", dtype_info(module.values->dtype).name, ", but ",
                               declared->where, " declares ", declared->weight_bits,
                               " bits and the ignore list does not name it")});
    return;
  }
  if (declared == nullptr) {
    findings.push_back({Severity::error, module.values->name,
                        concat("has ", weight_bits(module),
                               "-bit values, but quantization_config declares none for it")});
  } else if (declared->weight_bits != weight_bits(module)) {
    findings.push_back({Severity::error, module.values->name,
                        concat("has ", weight_bits(module), "-bit values, but ", declared->where,
                               " declares ", declared->weight_bits)});
  } else if (declared->activations == ActivationFormat::nvfp4 && module.input_scale == nullptr) {
    findings.push_back({Severity::error, module.values->name,
                        "expected an input scale for its declared 4-bit activations, found none"});
  }
}

/// The name under which vLLM knows a module of a file that has a vision tower's prefixes.
std::string vllm_name(std::string_view module) {
  constexpr std::string_view kPrefix = "model.language_model.";
  if (module == "lm_head") return "language_model.lm_head";
  if (!module.starts_with(kPrefix)) return std::string(module);
  return concat("language_model.model.", module.substr(kPrefix.size()));
}

bool has_method(const VerifySubject& subject, std::string_view name) {
  const Json* section = subject.checkpoint.config().find("quantization_config");
  const Json* method = section == nullptr ? nullptr : section->find("quant_method");
  return method != nullptr && *method == Json(name);
}

/// vLLM matches patterns against its own names. What it does not find it builds unquantized, and
/// then it stops at the file's scales.
void check_vllm_names(const VerifySubject& subject, Findings& findings) {
  if (!has_method(subject, "compressed-tensors")) return;
  const bool prefixed = std::ranges::any_of(subject.modules, [](const StoredModule& module) {
    return module.name.starts_with("model.language_model.");
  });
  if (!prefixed) return;
  int64_t lost = 0;
  std::string first;
  for (const StoredModule& module : subject.modules) {
    const bool text = in_text_model(module.name);
    if (!module.is_linear() || !module.quantized() || !text) continue;
    const DeclaredScheme* here = subject.declared.find(module.name);
    if (here == nullptr) continue;  // said already
    if (subject.declared.find_in_vllm(module.name, vllm_name(module.name)) == here) continue;
    if (lost++ == 0) first = module.name;
  }
  if (lost == 0) return;
  findings.push_back(
      {Severity::error, "config.json",
       concat("the targets of quantization_config miss ", lost, " quantized linears under vLLM's ",
              "names, first ", vllm_name(first),
              ": vLLM does not load the file; `nibble convert DIR OUT --repair` writes a config "
              "that it matches, with the same weights")});
}

/// A scheme of compressed-tensors that is sound and that vLLM has no kernel for.
void check_expert_scheme(const VerifySubject& subject, Findings& findings) {
  if (!has_method(subject, "compressed-tensors")) return;
  constexpr QuantScheme kScheme = {WeightFormat::fp8_tensor, ActivationFormat::fp8_token};
  const auto found = std::ranges::find_if(subject.modules, [&](const StoredModule& module) {
    return module.name.find(".experts.") != std::string::npos && module.scheme == kScheme;
  });
  if (found == subject.modules.end()) return;
  findings.push_back({Severity::warning, found->name,
                      "routed experts have one FP8 scale per matrix and activations per token, "
                      "which vLLM does not take: quantize the base again for vLLM"});
}

/// Plain names of the ignore list that stand for nothing are mostly names with a wrong prefix.
void check_ignored_names(const VerifySubject& subject, Findings& findings) {
  const Json* section = subject.checkpoint.config().find("quantization_config");
  const Json* ignore = section == nullptr ? nullptr : section->find("ignore");
  if (ignore == nullptr || !ignore->is_array()) return;
  std::set<std::string_view> known;
  for (const StoredModule& module : subject.modules) {
    const std::string_view name = module.name;
    for (size_t dot = name.size(); dot != std::string_view::npos && dot > 0;
         dot = name.rfind('.', dot - 1)) {
      known.insert(name.substr(0, dot));
    }
  }
  int64_t strangers = 0;
  std::string first;
  for (const Json& entry : ignore->as_array()) {
    if (!entry.is_string()) continue;
    const std::string& name = entry.as_string();
    if (name.starts_with("re:") || name.find_first_of("*?") != std::string::npos) continue;
    if (known.contains(name) || name.find('.') == std::string::npos) continue;
    if (strangers++ == 0) first = name;
  }
  if (strangers == 0) return;
  findings.push_back(
      {Severity::warning, "config.json",
       concat("quantization_config.ignore names ", strangers, " modules that do not exist, first ",
              first, "; with a wrong prefix other engines quantize what is not")});
}

/// Scales calibrated for the KV cache have ruined files; a declaration without them is a riddle.
void check_cache_scheme(const VerifySubject& subject, Findings& findings) {
  const Json* section = subject.checkpoint.config().find("quantization_config");
  const Json* scheme = section == nullptr ? nullptr : section->find("kv_cache_scheme");
  if (scheme == nullptr || scheme->is_null()) return;
  const bool scaled = std::ranges::any_of(subject.checkpoint.entries(), [](const auto& entry) {
    return entry.name.ends_with(".k_scale") || entry.name.ends_with(".v_scale");
  });
  if (scaled) return;
  findings.push_back({Severity::warning, "config.json",
                      "kv_cache_scheme is declared, but there are no k_scale and v_scale tensors: "
                      "engines run the cache at scale 1, or refuse"});
}

}  // namespace

void check_declaration(const VerifySubject& subject, Findings& findings) {
  for (const StoredModule& module : subject.modules) check_module(subject, module, findings);
  check_vllm_names(subject, findings);
  check_expert_scheme(subject, findings);
  check_ignored_names(subject, findings);
  check_cache_scheme(subject, findings);
}

}  // namespace nibble
