// quantization_config as compressed-tensors has it. Read for it: its quant_config.py and
// quant_scheme.py (0.20), vLLM's reader.
#include <algorithm>
#include <set>

#include "quantize/model_linears.h"
#include "quantize/scheme_words.h"

namespace nibble {
namespace {

constexpr std::string_view kCompressedTensorsVersion = "0.20.0";  // whose reader was read

/// Targets of one of several schemes: a regex where all modules of a shape agree, else full names.
std::vector<std::string> targets(const SchemeUse& use, const std::vector<SchemeUse>& all,
                                 const QuantDeclaration& declaration) {
  std::set<std::string> contested;
  for (const auto& other : all)
    if (!(other.scheme == use.scheme))
      for (const auto& module : other.modules) contested.insert(generalized(module));
  for (const auto& module : declaration.plain) contested.insert(generalized(module));
  std::set<std::string> out;
  for (const auto& module : use.modules) {
    const std::string pattern = generalized(module);
    out.insert(contested.contains(pattern) ? module : pattern);
  }
  return {out.begin(), out.end()};
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

/// "model.language_model.layers.3.mlp.experts" -> re:.*layers\.3\.mlp\.experts\..*
std::string all_experts_pattern(std::string_view list) {
  std::string out = "re:.*";
  for (const char c : list.substr(list.find("layers.")))
    out += c == '.' ? "\\." : std::string(1, c);
  return out + "\\..*";
}

/// Every plain linear by name, and patterns: for readers that spell the prefix another way, and for
/// those that ask about each expert of a layer whose experts stay fused.
std::vector<std::string> compressed_tensors_ignore(const QuantDeclaration& declaration) {
  std::vector<std::string> out;
  for (const std::string& module : declaration.plain) {
    out.push_back(module);
    if (module.ends_with(".experts")) out.push_back(all_experts_pattern(module));
  }
  struct Area {
    std::string_view part;     // of a module name
    std::string_view pattern;  // listed if modules with that part exist and none is quantized
  };
  constexpr Area kAreas[] = {{".linear_attn.", R"(re:.*\.linear_attn\..*)"},
                             {".mlp.gate", R"(re:.*\.mlp\.gate$)"},
                             {".shared_expert_gate", R"(re:.*\.shared_expert_gate$)"},
                             {"lm_head", R"(re:.*lm_head$)"}};
  for (const auto& area : kAreas) {
    const auto ends_or_contains = [&](std::string_view name) {
      return area.part.ends_with('.') ? name.find(area.part) != std::string_view::npos
                                      : name.ends_with(area.part);
    };
    const bool quantized = std::ranges::any_of(
        declaration.quantized, [&](const auto& module) { return ends_or_contains(module.name); });
    if (!quantized && std::ranges::any_of(declaration.plain, ends_or_contains))
      out.emplace_back(area.pattern);
  }
  const bool table = std::ranges::any_of(
      declaration.quantized, [](const auto& module) { return is_embedding(module.name); });
  if (!table) out.emplace_back(R"(re:.*embed_tokens$)");
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
    auto list = linears ? std::vector<std::string>{"Linear"} : targets(uses[i], uses, declaration);
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
