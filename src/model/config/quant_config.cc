// Reads the three families of quantization_config: compressed-tensors, ModelOpt, and Qwen's own
// FP8.
#include "model/config/quant_config.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <unordered_map>

#include "base/file.h"
#include "model/config/config_section.h"

namespace nibble {
namespace {

constexpr uint64_t kModeloptConfigBytesMax = 64U << 20;  // 291 entries are 40 KB; experts are more

/// One ModelOpt algorithm name.
struct Algorithm {
  std::string_view name;
  int weight_bits;
  ActivationFormat activations;
};

constexpr Algorithm kAlgorithms[] = {
    {"NVFP4", 4, ActivationFormat::nvfp4},
    {"W4A16_NVFP4", 4, ActivationFormat::high},
    {"FP8", 8, ActivationFormat::fp8_tensor},
    {"FP8_PER_CHANNEL_PER_TOKEN", 8, ActivationFormat::fp8_token},
};

/// The spellings one module may have in a config: as the checkpoint has it, and with the prefixes
/// other tools write for the same text model.
std::vector<std::string> spellings(std::string_view module) {
  constexpr std::array<std::string_view, 3> kPrefixes = {"model.language_model.",
                                                         "language_model.model.", "model."};
  std::vector<std::string> names = {std::string(module)};
  for (const auto prefix : kPrefixes) {
    if (!module.starts_with(prefix)) continue;
    for (const auto other : kPrefixes)
      if (other != prefix) names.push_back(concat(other, module.substr(prefix.size())));
    break;
  }
  return names;
}

}  // namespace

/// Fills a QuantConfig; one member function per kind of declaration.
class QuantConfigParser {
 public:
  Result<QuantConfig> parse(const Json& config, const Json* modelopt);

 private:
  Result<void> compressed_tensors(const ConfigSection& section);
  Result<void> group(const ConfigSection& section);
  Result<void> must_be_empty(const ConfigSection& section, std::string_view key);
  Result<void> modelopt(const ConfigSection& section);
  Result<void> modelopt_file(const Json& json);
  Result<void> qwen_fp8(const ConfigSection& section);
  Result<DeclaredScheme> algorithm(const ConfigSection& section);
  Result<ActivationFormat> activations(const ConfigSection& group);
  Result<std::vector<std::string>> names(const ConfigSection& section, std::string_view key);
  void add_rule(ModulePattern pattern) {
    config_.rules_.push_back({std::move(pattern), config_.schemes_.size() - 1});
  }

  QuantConfig config_;
};

Result<std::vector<std::string>> QuantConfigParser::names(const ConfigSection& section,
                                                          std::string_view key) {
  std::vector<std::string> texts;
  const Json* list = section.find(key);
  if (list == nullptr) return texts;
  if (!list->is_array()) return section.wrong(key, "a list of strings", *list);
  for (const auto& element : list->as_array()) {
    if (!element.is_string()) return section.wrong(key, "a list of strings", element);
    texts.push_back(element.as_string());
  }
  return texts;
}

Result<ActivationFormat> QuantConfigParser::activations(const ConfigSection& group) {
  if (!group.has("input_activations")) return ActivationFormat::high;
  const ConfigSection input = TRY(group.section("input_activations"));
  const int64_t bits = TRY(input.integer("num_bits", {1, 64}));
  const std::string type = TRY(input.text_or("type", "int"));
  const std::string strategy = TRY(input.text_or("strategy", "tensor"));
  const Json* dynamic_value = input.find("dynamic");
  const bool dynamic = dynamic_value != nullptr && !(*dynamic_value == Json(false));
  const int64_t size = TRY(input.integer_or("group_size", 0, {-1, 1 << 20}));
  if (type == "float" && bits == 16) return ActivationFormat::high;
  if (type == "float" && bits == 4 && strategy == "tensor_group" && size == kNvfp4Group)
    return ActivationFormat::nvfp4;
  if (type == "float" && bits == 8) {
    if (strategy == "token" && dynamic) return ActivationFormat::fp8_token;
    if (strategy == "tensor" && !dynamic) return ActivationFormat::fp8_tensor;
    if (strategy == "group" && dynamic && size == kFp8Block) return ActivationFormat::fp8_group;
  }
  return make_error(ErrorCode::unsupported,
                    {.what = group.name("input_activations"),
                     .expected = "4-bit tensor_group of 16, or 8-bit float by token, group of 128 "
                                 "or static tensor",
                     .found = concat(bits, "-bit ", type, " by ", strategy,
                                     dynamic ? " (dynamic)" : " (static)")});
}

/// A part that would change the arithmetic and must be null or empty.
Result<void> QuantConfigParser::must_be_empty(const ConfigSection& section, std::string_view key) {
  const Json* value = section.find(key);
  if (value == nullptr || (value->is_object() && value->as_object().empty())) return {};
  return make_error(
      ErrorCode::unsupported,
      {.what = section.name(key), .expected = "null or {}", .found = value->dump().substr(0, 60)});
}

Result<void> QuantConfigParser::group(const ConfigSection& section) {
  TRY(must_be_empty(section, "output_activations"));
  const ConfigSection weights = TRY(section.section("weights"));
  const int64_t bits = TRY(weights.integer("num_bits", {1, 64}));
  const std::string type = TRY(weights.text_or("type", "int"));
  if (type != "float" || (bits != 4 && bits != 8))
    return make_error(ErrorCode::unsupported, {.what = section.name("weights"),
                                               .expected = "float weights of 4 or 8 bits",
                                               .found = concat(bits, "-bit ", type)});
  const auto declared = TRY(activations(section));
  const std::string strategy = TRY(weights.text_or("strategy", "tensor"));
  config_.schemes_.push_back({.weight_bits = static_cast<int>(bits),
                              .scale_of_rows = strategy == "channel",
                              .activations = declared,
                              .where = section.name("weights")});
  for (const auto& target : TRY(names(section, "targets")))
    add_rule(TRY(ModulePattern::compressed_tensors(target)));
  return {};
}

Result<void> QuantConfigParser::compressed_tensors(const ConfigSection& section) {
  const std::string status = TRY(section.text_or("quantization_status", "compressed"));
  if (status != "compressed")
    return make_error(ErrorCode::unsupported, {.what = section.name("quantization_status"),
                                               .expected = "\"compressed\"",
                                               .found = concat("\"", status, "\"")});
  TRY(must_be_empty(section, "transform_config"));
  TRY(must_be_empty(section, "sparsity_config"));
  const ConfigSection groups = TRY(section.section("config_groups"));
  for (const auto& member : groups.object().as_object()) {
    const ConfigSection one = TRY(groups.section(member.key));
    TRY(group(one));
  }
  for (const auto& name : TRY(names(section, "ignore")))
    config_.ignored_.push_back(TRY(ModulePattern::compressed_tensors(name)));
  return {};
}

Result<DeclaredScheme> QuantConfigParser::algorithm(const ConfigSection& section) {
  const std::string name = TRY(section.text("quant_algo"));
  std::string known;
  for (const auto& entry : kAlgorithms) {
    if (entry.name == name)
      return DeclaredScheme{.weight_bits = entry.weight_bits,
                            .scale_of_rows = entry.activations == ActivationFormat::fp8_token,
                            .activations = entry.activations,
                            .where = section.name("quant_algo")};
    known += concat(known.empty() ? "" : ", ", entry.name);
  }
  return make_error(
      ErrorCode::unsupported,
      {.what = section.name("quant_algo"), .expected = concat("one of ", known), .found = name});
}

Result<void> QuantConfigParser::modelopt(const ConfigSection& section) {
  for (const std::string_view key : {"ignore", "exclude_modules"})
    for (const auto& name : TRY(names(section, key)))
      config_.ignored_.push_back(ModulePattern::modelopt(name));
  const std::string name = TRY(section.text("quant_algo"));
  if (name != "MIXED_PRECISION") {
    config_.schemes_.push_back(TRY(algorithm(section)));
    add_rule(TRY(ModulePattern::compressed_tensors("Linear")));
    return {};
  }
  const ConfigSection layers = TRY(section.section("quantized_layers"));
  for (const auto& member : layers.object().as_object()) {
    const ConfigSection layer = TRY(layers.section(member.key));
    config_.schemes_.push_back(TRY(algorithm(layer)));
    add_rule(ModulePattern::modelopt(member.key));
  }
  return {};
}

Result<void> QuantConfigParser::qwen_fp8(const ConfigSection& section) {
  const std::string scheme = TRY(section.text_or("activation_scheme", "dynamic"));
  const auto block = TRY(section.integers_or_none("weight_block_size", {1, 1 << 20}));
  const bool blocked = !block.empty();
  if (blocked && block != std::vector<int64_t>{kFp8Block, kFp8Block})
    return section.wrong("weight_block_size", "[128, 128]", *section.find("weight_block_size"));
  const bool known = scheme == "dynamic" || (scheme == "static" && !blocked);
  if (!known)
    return make_error(ErrorCode::unsupported, {.what = section.name("activation_scheme"),
                                               .expected = "\"dynamic\"",
                                               .found = concat("\"", scheme, "\"")});
  const auto format = scheme == "static" ? ActivationFormat::fp8_tensor
                      : blocked          ? ActivationFormat::fp8_group
                                         : ActivationFormat::fp8_token;
  config_.schemes_.push_back(
      {.weight_bits = 8, .activations = format, .where = section.name("quant_method")});
  add_rule(TRY(ModulePattern::compressed_tensors("Linear")));
  return {};
}

Result<void> QuantConfigParser::modelopt_file(const Json& json) {
  const ConfigSection root(json, "hf_quant_config.json: ");
  return modelopt(TRY(root.section("quantization")));
}

Result<QuantConfig> QuantConfigParser::parse(const Json& config, const Json* modelopt_json) {
  const ConfigSection root(config, "config.json: ");
  if (!root.has("quantization_config")) {
    if (modelopt_json != nullptr) TRY(modelopt_file(*modelopt_json));
    return std::move(config_);
  }
  const ConfigSection section = TRY(root.section("quantization_config"));
  const std::string method = TRY(section.text("quant_method"));
  if (method == "compressed-tensors") {
    TRY(compressed_tensors(section));
  } else if (method.starts_with("modelopt")) {
    // The section of config.json may be a summary of the file beside it.
    const bool complete =
        section.has("quant_algo") && (section.has("quantized_layers") ||
                                      !(*section.find("quant_algo") == Json("MIXED_PRECISION")));
    TRY(complete || modelopt_json == nullptr ? modelopt(section) : modelopt_file(*modelopt_json));
  } else if (method == "fp8") {
    TRY(qwen_fp8(section));
  } else {
    return make_error(ErrorCode::unsupported, {.what = section.name("quant_method"),
                                               .expected = "compressed-tensors, modelopt or fp8",
                                               .found = method});
  }
  return std::move(config_);
}

struct QuantConfig::Answers {
  bool experts_alike = false;
  std::mutex mutex;                                 // guards the map
  std::unordered_map<std::string, size_t> by_name;  // -> scheme
};

Result<QuantConfig> QuantConfig::parse(const Json& config, const Json* modelopt) {
  QuantConfig parsed = TRY(QuantConfigParser().parse(config, modelopt));
  parsed.answers_ = std::make_shared<Answers>();
  parsed.answers_->experts_alike = parsed.experts_alike();
  return parsed;
}

Result<QuantConfig> QuantConfig::read(const Checkpoint& checkpoint) {
  const auto side = checkpoint.folder() / "hf_quant_config.json";
  if (!std::filesystem::exists(side)) return parse(checkpoint.config(), nullptr);
  const std::string text = TRY(read_text_file(side, kModeloptConfigBytesMax));
  const Json json = TRY(parse_json(text, "hf_quant_config.json"));
  return parse(checkpoint.config(), &json);
}

/// No pattern has a digit after the word "experts": none can mean one of them and not another.
bool QuantConfig::experts_alike() const {
  const auto alike = [](const ModulePattern& pattern) {
    const size_t at = pattern.text().find("experts");
    if (at == std::string::npos) return true;
    return std::none_of(pattern.text().begin() + static_cast<ptrdiff_t>(at), pattern.text().end(),
                        [](char c) { return c >= '0' && c <= '9'; });
  };
  return std::all_of(ignored_.begin(), ignored_.end(), alike) &&
         std::all_of(rules_.begin(), rules_.end(), [&](const Rule& r) { return alike(r.pattern); });
}

const DeclaredScheme* QuantConfig::find(std::string_view module) const {
  const auto scheme = [&](size_t i) { return i == kNone ? nullptr : &schemes_[i]; };
  if (empty()) return nullptr;
  constexpr std::string_view kExperts = ".experts.";
  const size_t begin = module.find(kExperts);
  const size_t number = begin == std::string_view::npos ? begin : begin + kExperts.size();
  const size_t end = number == std::string_view::npos ? number : module.find('.', number);
  const auto match_all = [&] {
    const Names names = spellings(module);
    return match(names, names);
  };
  if (!answers_->experts_alike || end == std::string_view::npos) return scheme(match_all());
  const std::string name = concat(module.substr(0, number), module.substr(end));
  const std::lock_guard lock(answers_->mutex);
  const auto [found, fresh] = answers_->by_name.try_emplace(name, kNone);
  if (fresh) found->second = match_all();
  return scheme(found->second);
}

const DeclaredScheme* QuantConfig::find_in_vllm(std::string_view module,
                                                std::string_view name) const {
  const size_t found = match(spellings(module), {std::string(name)});
  if (found == kNone) return nullptr;
  if (module != "lm_head") return &schemes_[found];
  const bool named = std::any_of(rules_.begin(), rules_.end(), [&](const Rule& rule) {
    return rule.scheme == found && rule.pattern.kind() != ModulePattern::Kind::every_linear &&
           (rule.pattern.matches(name) || rule.pattern.matches(module));
  });
  return named ? &schemes_[found] : nullptr;
}

size_t QuantConfig::match(const Names& names, const Names& spelled) const {
  const auto matches = [&](const ModulePattern& pattern) {
    const bool full = pattern.kind() == ModulePattern::Kind::exact;
    const Names& known = full ? names : spelled;
    return std::any_of(known.begin(), known.end(),
                       [&](const std::string& name) { return pattern.matches(name); });
  };
  if (std::any_of(ignored_.begin(), ignored_.end(), matches)) return kNone;
  const Rule* best = nullptr;
  for (const auto& rule : rules_) {
    if (best != nullptr && best->pattern.kind() <= rule.pattern.kind()) continue;
    if (matches(rule.pattern)) best = &rule;
  }
  return best == nullptr ? kNone : best->scheme;
}

}  // namespace nibble
