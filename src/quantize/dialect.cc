// Config blocks of both dialects. Read for them: compressed-tensors quant_config.py and
// quant_scheme.py (0.20), Model-Optimizer convert_hf_config.py (0.46), vLLM's readers of both.
#include "quantize/dialect.h"

#include <algorithm>
#include <map>
#include <set>

namespace nibble {
namespace {

constexpr std::string_view kCompressedTensorsVersion = "0.20.0";  // whose reader was read
constexpr std::string_view kNvfp4Format = "nvfp4-pack-quantized";

/// One use of a scheme, in order of first appearance.
struct SchemeUse {
  QuantScheme scheme;
  std::vector<std::string> modules;
};

std::vector<SchemeUse> scheme_uses(const QuantDeclaration& declaration) {
  std::vector<SchemeUse> uses;
  for (const auto& module : declaration.quantized) {
    auto use = std::ranges::find(uses, module.scheme, &SchemeUse::scheme);
    if (use == uses.end()) use = uses.insert(uses.end(), SchemeUse{.scheme = module.scheme});
    use->modules.push_back(module.name);
  }
  return uses;
}

bool all_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

/// The module's name as a regex with every number free: re:model\.layers\.\d+\.mlp\.gate$
std::string generalized(std::string_view module) {
  std::string out = "re:";
  for (size_t begin = 0; begin <= module.size();) {
    const size_t end = std::min(module.find('.', begin), module.size());
    const auto part = module.substr(begin, end - begin);
    if (begin > 0) out += "\\.";
    out += all_digits(part) ? std::string_view("\\d+") : part;
    begin = end + 1;
  }
  return out + "$";
}

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

Json strings(const std::vector<std::string>& texts) {
  Json list{Json::Array()};
  for (const auto& text : texts) list.push_back(text);
  return list;
}

/// QuantizationArgs of compressed-tensors for one side of an NVFP4 linear.
Json nvfp4_args(Json dynamic, std::string_view observer) {
  Json args;
  args.set("num_bits", 4);
  args.set("type", "float");
  args.set("strategy", "tensor_group");
  args.set("group_size", kNvfp4Group);
  args.set("symmetric", true);
  args.set("dynamic", std::move(dynamic));
  args.set("actorder", nullptr);
  args.set("block_structure", nullptr);
  args.set("observer", observer);
  args.set("observer_kwargs", Json(Json::Object()));
  args.set("scale_dtype", "torch.float8_e4m3fn");
  args.set("zp_dtype", "torch.float8_e4m3fn");
  return args;
}

Json compressed_tensors_group(const QuantScheme& scheme, std::vector<std::string> target_list) {
  CHECK(scheme.weights == WeightFormat::nvfp4, "scheme without a compressed-tensors group");
  Json group;
  group.set("targets", strings(target_list));
  group.set("format", kNvfp4Format);
  group.set("weights", nvfp4_args(false, "memoryless_minmax"));
  const bool four_bit = scheme.activations == ActivationFormat::nvfp4;
  group.set("input_activations", four_bit ? nvfp4_args("local", "static_minmax") : Json());
  group.set("output_activations", nullptr);
  return group;
}

/// Every plain linear by name, and patterns for readers that spell the prefix another way.
std::vector<std::string> compressed_tensors_ignore(const QuantDeclaration& declaration) {
  std::vector<std::string> out = declaration.plain;
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
  out.emplace_back(R"(re:.*embed_tokens$)");
  if (!declaration.vision_prefix.empty()) out.emplace_back(R"(re:.*visual\..*)");
  if (declaration.has_mtp) out.emplace_back("re:^mtp.*");
  return out;
}

Json compressed_tensors_config(const QuantDeclaration& declaration) {
  const auto uses = scheme_uses(declaration);
  Json groups{Json::Object()};
  for (size_t i = 0; i < uses.size(); ++i) {
    auto list =
        uses.size() == 1 ? std::vector<std::string>{"Linear"} : targets(uses[i], uses, declaration);
    groups.set(concat("group_", i), compressed_tensors_group(uses[i].scheme, std::move(list)));
  }
  Json config;
  config.set("quant_method", "compressed-tensors");
  config.set("format", kNvfp4Format);
  config.set("quantization_status", "compressed");
  config.set("version", kCompressedTensorsVersion);
  config.set("global_compression_ratio", nullptr);
  config.set("kv_cache_scheme", nullptr);
  config.set("sparsity_config", Json(Json::Object()));
  config.set("transform_config", Json(Json::Object()));
  config.set("config_groups", std::move(groups));
  config.set("ignore", strings(compressed_tensors_ignore(declaration)));
  return config;
}

std::string_view modelopt_algorithm(const QuantScheme& scheme) {
  CHECK(scheme.weights == WeightFormat::nvfp4, "scheme without a ModelOpt algorithm");
  return scheme.activations == ActivationFormat::nvfp4 ? "NVFP4" : "W4A16_NVFP4";
}

Json modelopt_group(const QuantScheme& scheme, const std::vector<std::string>& target_list) {
  Json side;
  side.set("dynamic", false);
  side.set("num_bits", 4);
  side.set("type", "float");
  side.set("group_size", kNvfp4Group);
  Json group;
  if (scheme.activations == ActivationFormat::nvfp4) group.set("input_activations", side);
  group.set("weights", side);
  group.set("targets", strings(target_list));
  return group;
}

/// ModelOpt names the experts of a layer once, as "...mlp.experts", if they agree.
std::vector<std::string> merged_experts(const std::vector<std::string>& modules,
                                        const std::set<std::string>& contested) {
  std::vector<std::string> out;
  for (const auto& module : modules) {
    const size_t at = module.find(".experts.");
    std::string name = module;
    if (at != std::string::npos && !contested.contains(module.substr(0, at + 8)))
      name = module.substr(0, at + 8);
    if (out.empty() || out.back() != name) out.push_back(name);
  }
  return out;
}

/// Expert lists of which not every linear has the same scheme.
std::set<std::string> contested_experts(const std::vector<SchemeUse>& uses,
                                        const QuantDeclaration& declaration) {
  std::map<std::string, std::set<size_t>> users;
  const auto note = [&](const std::string& module, size_t user) {
    const size_t at = module.find(".experts.");
    if (at != std::string::npos) users[module.substr(0, at + 8)].insert(user);
  };
  for (size_t i = 0; i < uses.size(); ++i)
    for (const auto& module : uses[i].modules) note(module, i);
  for (const auto& module : declaration.plain) note(module, uses.size());
  std::set<std::string> out;
  for (const auto& [name, by] : users)
    if (by.size() > 1) out.insert(name);
  return out;
}

std::vector<std::string> modelopt_exclude(const QuantDeclaration& declaration) {
  std::vector<std::string> out = declaration.plain;
  if (!declaration.vision_prefix.empty()) out.push_back(declaration.vision_prefix + "*");
  if (declaration.has_mtp) out.emplace_back("mtp*");
  return out;
}

Json producer() {
  Json who;
  who.set("name", "nibble");
  who.set("version", NIBBLE_VERSION);
  return who;
}

/// {module: {quant_algo, group_size}} of a mixed checkpoint.
Json quantized_layers(const std::vector<SchemeUse>& uses, const QuantDeclaration& declaration) {
  const auto contested = contested_experts(uses, declaration);
  Json layers{Json::Object()};
  for (const auto& use : uses) {
    for (const auto& module : merged_experts(use.modules, contested)) {
      Json layer;
      layer.set("quant_algo", modelopt_algorithm(use.scheme));
      layer.set("group_size", kNvfp4Group);
      layers.as_object().push_back({module, std::move(layer)});
    }
  }
  return layers;
}

Json modelopt_config(const QuantDeclaration& declaration) {
  const auto uses = scheme_uses(declaration);
  const auto contested = contested_experts(uses, declaration);
  Json groups{Json::Object()};
  for (size_t i = 0; i < uses.size(); ++i)
    groups.set(concat("group_", i),
               modelopt_group(uses[i].scheme, uses.size() == 1
                                                  ? std::vector<std::string>{"Linear"}
                                                  : merged_experts(uses[i].modules, contested)));
  Json config;
  config.set("config_groups", std::move(groups));
  if (uses.size() > 1) config.set("quantized_layers", quantized_layers(uses, declaration));
  config.set("ignore", strings(modelopt_exclude(declaration)));
  config.set("quant_algo", uses.size() == 1 ? modelopt_algorithm(uses[0].scheme)
                                            : std::string_view("MIXED_PRECISION"));
  config.set("kv_cache_scheme", nullptr);
  config.set("producer", producer());
  config.set("quant_method", "modelopt");
  return config;
}

}  // namespace

std::string_view dialect_name(Dialect dialect) {
  return dialect == Dialect::modelopt ? "modelopt" : "compressed-tensors";
}

Result<Dialect> parse_dialect(std::string_view name) {
  for (const Dialect dialect : {Dialect::compressed_tensors, Dialect::modelopt})
    if (dialect_name(dialect) == name) return dialect;
  return make_error(
      ErrorCode::invalid_argument,
      {.what = "format", .expected = "compressed-tensors or modelopt", .found = name});
}

GlobalScale::Direction scale_direction(Dialect dialect) {
  return dialect == Dialect::modelopt ? GlobalScale::Direction::multiply
                                      : GlobalScale::Direction::divide;
}

Shape scale_shape(Dialect dialect) { return dialect == Dialect::modelopt ? Shape{} : Shape{1}; }

Nvfp4Names nvfp4_names(std::string_view module, Dialect dialect) {
  if (dialect == Dialect::modelopt)
    return {.codes = concat(module, ".weight"),
            .scales = concat(module, ".weight_scale"),
            .global = concat(module, ".weight_scale_2"),
            .input_scale = concat(module, ".input_scale")};
  return {.codes = concat(module, ".weight_packed"),
          .scales = concat(module, ".weight_scale"),
          .global = concat(module, ".weight_global_scale"),
          .input_scale = concat(module, ".input_global_scale")};
}

Json quantization_config(const QuantDeclaration& declaration, Dialect dialect) {
  return dialect == Dialect::modelopt ? modelopt_config(declaration)
                                      : compressed_tensors_config(declaration);
}

Json modelopt_file(const QuantDeclaration& declaration) {
  const auto uses = scheme_uses(declaration);
  Json quantization;
  quantization.set("quant_algo", uses.size() == 1 ? modelopt_algorithm(uses[0].scheme)
                                                  : std::string_view("MIXED_PRECISION"));
  quantization.set("kv_cache_quant_algo", nullptr);
  quantization.set("group_size", kNvfp4Group);
  quantization.set("exclude_modules", strings(modelopt_exclude(declaration)));
  if (uses.size() > 1) quantization.set("quantized_layers", quantized_layers(uses, declaration));
  Json file;
  file.set("producer", producer());
  file.set("quantization", std::move(quantization));
  return file;
}

}  // namespace nibble
