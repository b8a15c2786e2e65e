// quantization_config as compressed-tensors has it. Read for it: its quant_config.py and
// quant_scheme.py (0.20), vLLM's reader.
#include <algorithm>
#include <iterator>

#include "model/config/target_patterns.h"
#include "quantize/recipe/model_linears.h"
#include "quantize/recipe/scheme_words.h"

namespace nibble {
namespace {

constexpr std::string_view kCompressedTensorsVersion = "0.20.0";  // whose reader was read

/// Targets of one of several schemes: patterns that match none of the other modules.
std::vector<std::string> targets(const SchemeUse& use, const QuantDeclaration& declaration) {
  std::vector<std::string> others = declaration.plain;
  for (const auto& module : declaration.quantized)
    if (!(module.scheme == use.scheme)) others.push_back(module.name);
  return target_patterns(use.modules, others);
}

/// Targets of the only scheme. Every reader knows "Linear"; vLLM and SGLang do not count a head
/// among the linears, and must see its name.
std::vector<std::string> only_targets(const SchemeUse& use) {
  std::vector<std::string> out = {"Linear"};
  if (std::ranges::find(use.modules, "lm_head") != use.modules.end())
    out.push_back(target_patterns({"lm_head"}, {}).front());
  return out;
}

/// QuantizationArgs of compressed-tensors for one side of a linear.
Json side_args(int bits, std::string_view strategy, Json dynamic, std::string_view observer) {
  Json args;
  args.set("num_bits", bits);
  args.set("type", "float");
  args.set("strategy", strategy);
  const bool grouped = strategy == "tensor_group" || strategy == "group";
  args.set("group_size", grouped ? Json(bits == 4 ? kNvfp4Group : kFp8Block) : Json());
  args.set("symmetric", true);
  args.set("dynamic", std::move(dynamic));
  args.set("actorder", nullptr);
  Json edge{Json::Array{Json(kFp8Block), Json(kFp8Block)}};
  args.set("block_structure", strategy == "block" ? std::move(edge) : Json());
  args.set("observer", observer);
  args.set("observer_kwargs", Json(Json::Object()));
  if (bits != 4) return args;
  args.set("scale_dtype", "torch.float8_e4m3fn");
  args.set("zp_dtype", "torch.float8_e4m3fn");
  return args;
}

Json compressed_tensors_group(const QuantScheme& scheme,
                              const std::vector<std::string>& target_list) {
  const SchemeWords& say = words(scheme);
  const int bits = scheme_bits(scheme);
  Json group;
  group.set("targets", json_strings(target_list));
  group.set("format", say.format);
  group.set("weights", side_args(bits, say.weight_strategy, false, "memoryless_minmax"));
  Json activations;
  const bool quantized = !say.activation_strategy.empty();
  if (bits == 4 && quantized)
    activations = side_args(bits, say.activation_strategy, "local", "static_minmax");
  if (bits == 8 && quantized) {
    const bool measured = scheme.activations == ActivationFormat::fp8_tensor;
    activations = side_args(bits, say.activation_strategy, !measured,
                            measured ? "static_minmax" : "memoryless_minmax");
  }
  group.set("input_activations", std::move(activations));
  group.set("output_activations", nullptr);
  return group;
}

/// The format of all groups, or "mixed-precision".
std::string_view common_format(const std::vector<SchemeUse>& uses) {
  const std::string_view first = words(uses.front().scheme).format;
  for (const SchemeUse& use : uses)
    if (words(use.scheme).format != first) return "mixed-precision";
  return first;
}

/// One area of the model. It is ignored as a whole if modules with that part exist and none of them
/// is quantized.
struct Area {
  std::string_view part;     // of a module name
  std::string_view pattern;  // for the ignore list
  bool has(std::string_view module) const {
    return part.ends_with('.') ? module.find(part) != std::string_view::npos
                               : module.ends_with(part);
  }
};
constexpr Area kAreas[] = {{".linear_attn.", R"(re:.*\.linear_attn\..*)"},
                           {".mlp.gate", R"(re:.*\.mlp\.gate$)"},
                           {".shared_expert_gate", R"(re:.*\.shared_expert_gate$)"},
                           {"lm_head", R"(re:.*lm_head$)"}};

/// Every plain linear by its name in the file, and patterns for readers that give it another name.
std::vector<std::string> compressed_tensors_ignore(const QuantDeclaration& declaration) {
  std::vector<std::string> out = declaration.plain;
  std::vector<std::string> rest;  // in no area that is plain as a whole
  std::ranges::copy_if(out, std::back_inserter(rest), [&](const std::string& module) {
    return in_text_model(module) || (!declaration.has_mtp && is_mtp(module));
  });
  std::vector<std::string> quantized;
  for (const auto& module : declaration.quantized) quantized.push_back(module.name);
  for (const Area& area : kAreas) {
    const auto in_area = [&](std::string_view name) { return area.has(name); };
    if (std::ranges::any_of(quantized, in_area)) continue;
    if (std::erase_if(rest, in_area) > 0) out.emplace_back(area.pattern);
  }
  for (std::string& pattern : target_patterns(rest, quantized)) out.push_back(std::move(pattern));
  if (std::ranges::none_of(quantized, is_embedding)) out.emplace_back(R"(re:.*embed_tokens$)");
  if (!declaration.vision_prefix.empty()) out.emplace_back(R"(re:.*visual\..*)");
  if (declaration.has_mtp) out.emplace_back("re:^mtp.*");
  return out;
}

}  // namespace

Json compressed_tensors_config(const QuantDeclaration& declaration) {
  const auto uses = scheme_uses(declaration);
  Json groups{Json::Object()};
  for (size_t i = 0; i < uses.size(); ++i) {
    const bool linears = uses.size() == 1 && !is_embedding(uses[i].modules.front());
    auto list = linears ? only_targets(uses[i]) : targets(uses[i], declaration);
    groups.set(concat("group_", i), compressed_tensors_group(uses[i].scheme, std::move(list)));
  }
  Json config;
  config.set("quant_method", "compressed-tensors");
  config.set("format", common_format(uses));
  config.set("quantization_status", "compressed");
  config.set("version", kCompressedTensorsVersion);
  config.set("global_compression_ratio", nullptr);
  config.set("kv_cache_scheme", nullptr);
  config.set("sparsity_config", Json(Json::Object()));
  config.set("transform_config", Json(Json::Object()));
  config.set("config_groups", std::move(groups));
  config.set("ignore", json_strings(compressed_tensors_ignore(declaration)));
  return config;
}

}  // namespace nibble
