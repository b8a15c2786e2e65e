// Declarations of the three dialects: what they say of a module, and what is refused.
#include "model/config/quant_config.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

constexpr std::string_view kW4a4 =
    R"({"targets":["Linear"],"weights":{"num_bits":4,"type":"float","strategy":"tensor_group"},)"
    R"("input_activations":{"num_bits":4,"type":"float","strategy":"tensor_group","group_size":16,)"
    R"("dynamic":"local"}})";

Json compressed(std::string_view groups, std::string_view ignore = "[]") {
  return parse_json(concat(R"({"quantization_config":{"quant_method":"compressed-tensors",)",
                           R"("config_groups":)", groups, R"(,"ignore":)", ignore, "}}"),
                    "test")
      .value();
}

Json modelopt(std::string_view body) {
  return parse_json(concat(R"({"quantization_config":{"quant_method":"modelopt",)", body, "}}"),
                    "test")
      .value();
}

const QuantConfig parsed(const Json& config) { return QuantConfig::parse(config, nullptr).value(); }

ActivationFormat activations(const QuantConfig& config, std::string_view module) {
  const DeclaredScheme* scheme = config.find(module);
  EXPECT_NE(scheme, nullptr) << module;
  return scheme == nullptr ? ActivationFormat::high : scheme->activations;
}

TEST(QuantConfig, NothingDeclared) {
  const QuantConfig config = parsed(parse_json("{}", "test").value());
  EXPECT_TRUE(config.empty());
  EXPECT_EQ(config.find("model.layers.0.mlp.up_proj"), nullptr);
}

TEST(QuantConfig, IgnoreWinsOverTargets) {
  const auto config = parsed(
      compressed(concat(R"({"group_0":)", kW4a4, "}"), R"(["lm_head","re:.*linear_attn.*"])"));
  EXPECT_EQ(config.find("lm_head"), nullptr);
  EXPECT_EQ(config.find("model.layers.0.linear_attn.out_proj"), nullptr);
  EXPECT_EQ(activations(config, "model.layers.0.mlp.up_proj"), ActivationFormat::nvfp4);
  EXPECT_EQ(config.find("model.layers.0.mlp.up_proj")->weight_bits, 4);
}

TEST(QuantConfig, NamesWrittenWithAnotherPrefixMatch) {
  const auto config =
      parsed(compressed(concat(R"({"group_0":)", kW4a4, "}"), R"(["model.layers.0.mlp.gate"])"));
  EXPECT_EQ(config.find("model.language_model.layers.0.mlp.gate"), nullptr);
  EXPECT_NE(config.find("model.language_model.layers.1.mlp.gate"), nullptr);
}

TEST(QuantConfig, ExactNamesBeatRegexesBeatClasses) {
  const auto group = [](std::string_view target, std::string_view activations) {
    return concat(R"({"targets":[")", target, R"("],"weights":{"num_bits":8,"type":"float"},)",
                  R"("input_activations":)", activations, "}");
  };
  const auto token = R"({"num_bits":8,"type":"float","strategy":"token","dynamic":true})";
  const auto tensor = R"({"num_bits":8,"type":"float","strategy":"tensor","dynamic":false})";
  const auto tiles =
      R"({"num_bits":8,"type":"float","strategy":"group","group_size":128,"dynamic":true})";
  const auto config = parsed(compressed(
      concat(R"({"a":)", group("Linear", "null"), R"(,"b":)", group("re:.*self_attn", token),
             R"(,"c":)", group("re:model.*o_proj", tiles), R"(,"d":)",
             group("model.layers.0.self_attn.q_proj", tensor), "}")));
  EXPECT_EQ(activations(config, "model.layers.0.mlp.up_proj"), ActivationFormat::high);
  EXPECT_EQ(activations(config, "model.layers.0.self_attn.k_proj"), ActivationFormat::fp8_token);
  EXPECT_EQ(activations(config, "model.layers.0.self_attn.q_proj"), ActivationFormat::fp8_tensor);
  EXPECT_EQ(activations(config, "model.layers.0.linear_attn.o_proj"), ActivationFormat::fp8_group);
  EXPECT_EQ(activations(config, "x.model.layers.0.o_proj"), ActivationFormat::high);  // anchored
}

TEST(QuantConfig, ModeloptOneAlgorithm) {
  const auto config =
      parsed(modelopt(R"("quant_algo":"NVFP4","exclude_modules":["lm_head","*linear_attn*"])"));
  EXPECT_EQ(activations(config, "model.layers.3.mlp.experts.7.up_proj"), ActivationFormat::nvfp4);
  EXPECT_EQ(config.find("lm_head"), nullptr);
  EXPECT_EQ(config.find("model.layers.0.linear_attn.in_proj_qkv"), nullptr);
}

TEST(QuantConfig, ModeloptMixedCoversModulesBelowAName) {
  const auto config =
      parsed(modelopt(R"("quant_algo":"MIXED_PRECISION","quantized_layers":{)"
                      R"("model.language_model.layers.0.mlp.experts":{"quant_algo":"W4A16_NVFP4"},)"
                      R"("model.language_model.layers.0.self_attn.q_proj":{"quant_algo":"FP8"}})"));
  const std::string layer = "model.language_model.layers.0.";
  EXPECT_EQ(activations(config, layer + "mlp.experts.3.up_proj"), ActivationFormat::high);
  EXPECT_EQ(config.find(layer + "mlp.experts.3.up_proj")->weight_bits, 4);
  EXPECT_EQ(activations(config, layer + "self_attn.q_proj"), ActivationFormat::fp8_tensor);
  EXPECT_EQ(config.find(layer + "self_attn.q_projection"), nullptr);
  EXPECT_EQ(config.find(layer + "self_attn.k_proj"), nullptr);
}

TEST(QuantConfig, ModeloptFileBesideTheConfig) {
  const Json side =
      parse_json(R"({"quantization":{"quant_algo":"MIXED_PRECISION","quantized_layers":{)"
                 R"("lm_head":{"quant_algo":"NVFP4"}}}})",
                 "test")
          .value();
  const Json none = Json::Object{};
  for (const Json& config : {none, modelopt(R"("quant_algo":"MIXED_PRECISION")")}) {
    const auto both = QuantConfig::parse(config, &side).value();
    EXPECT_EQ(activations(both, "lm_head"), ActivationFormat::nvfp4);
  }
}

TEST(QuantConfig, QwenFp8) {
  const Json blocks = parse_json(R"({"quantization_config":{"quant_method":"fp8",)"
                                 R"("activation_scheme":"dynamic","weight_block_size":[128,128]}})",
                                 "test")
                          .value();
  EXPECT_EQ(activations(parsed(blocks), "model.layers.0.mlp.up_proj"), ActivationFormat::fp8_group);
}

struct BadCase {
  std::string_view json;
  std::string_view message;
};

constexpr BadCase kBadCases[] = {
    {R"({"quant_method":"awq"})", "quant_method: expected compressed-tensors, modelopt or fp8"},
    {R"({})", "quant_method"},
    {R"({"quant_method":"compressed-tensors"})", "config_groups"},
    {R"({"quant_method":"compressed-tensors","quantization_status":"frozen","config_groups":{}})",
     "quantization_status"},
    {R"({"quant_method":"compressed-tensors","config_groups":{"g":{"targets":["Linear"]}}})",
     "config_groups.g.weights: expected an object"},
    {R"({"quant_method":"compressed-tensors","config_groups":{"g":{"targets":["Linear"],)"
     R"("weights":{"num_bits":4,"type":"int"}}}})",
     "found 4-bit int"},
    {R"({"quant_method":"compressed-tensors","config_groups":{"g":{"targets":["Linear"],)"
     R"("weights":{"num_bits":8,"type":"float"},"input_activations":{"num_bits":8,"type":"float",)"
     R"("strategy":"tensor","dynamic":true}}}})",
     "found 8-bit float by tensor (dynamic)"},
    {R"({"quant_method":"compressed-tensors","config_groups":{"g":{"targets":["Linear"],)"
     R"("weights":{"num_bits":4,"type":"float"},"input_activations":{"num_bits":4,"type":"float",)"
     R"("strategy":"tensor_group","group_size":32}}}})",
     "input_activations"},
    {R"({"quant_method":"compressed-tensors","config_groups":{"g":{"targets":["re:(?<=a)b"],)"
     R"("weights":{"num_bits":8,"type":"float"}}}})",
     "re:(?<=a)b"},
    {R"({"quant_method":"compressed-tensors","config_groups":{"g":{"targets":"Linear",)"
     R"("weights":{"num_bits":8,"type":"float"}}}})",
     "targets: expected a list of strings"},
    {R"({"quant_method":"compressed-tensors","config_groups":{},"ignore":[1]})", "ignore"},
    {R"({"quant_method":"compressed-tensors","config_groups":{},"transform_config":{"a":1}})",
     "transform_config: expected null or {}"},
    {R"({"quant_method":"compressed-tensors","config_groups":{},"sparsity_config":{"format":"x"}})",
     "sparsity_config"},
    {R"({"quant_method":"compressed-tensors","config_groups":{"g":{"targets":["Linear"],)"
     R"("weights":{"num_bits":8,"type":"float"},"output_activations":{"num_bits":8}}}})",
     "output_activations"},
    {R"({"quant_method":"compressed-tensors","config_groups":{"g":{"targets":["re:(a)\\1"],)"
     R"("weights":{"num_bits":8,"type":"float"}}}})",
     "without Python-only features"},
    {R"({"quant_method":"modelopt","quant_algo":"NVFP4_AWQ"})", "found NVFP4_AWQ"},
    {R"({"quant_method":"modelopt"})", "quant_algo"},
    {R"({"quant_method":"modelopt","quant_algo":"MIXED_PRECISION"})", "quantized_layers"},
    {R"({"quant_method":"fp8","weight_block_size":[64,64]})", "expected [128, 128]"},
    {R"({"quant_method":"fp8","activation_scheme":"static","weight_block_size":[128,128]})",
     "activation_scheme"},
};

TEST(QuantConfig, BadDeclarationsAreRefusedByName) {
  for (const auto& bad : kBadCases) {
    SCOPED_TRACE(bad.json);
    const Json config =
        parse_json(concat(R"({"quantization_config":)", bad.json, "}"), "test").value();
    const auto result = QuantConfig::parse(config, nullptr);
    ASSERT_FALSE(result);
    EXPECT_NE(result.error().message.find(bad.message), std::string::npos)
        << result.error().message;
  }
}

TEST(QuantConfig, ExpertsShareAnAnswerUnlessAPatternTellsThemApart) {
  const auto find = [](const char* ignored, const char* module) {
    const std::string text = concat(
        R"({"quantization_config":{"quant_method":"compressed-tensors",)",
        R"("format":"nvfp4-pack-quantized",)",
        R"("config_groups":{"g":{"targets":["re:.*experts\\.\\d+\\.(up|down)_proj$"],"weights":)",
        R"({"num_bits":4,"type":"float","group_size":16,"strategy":"tensor_group",)",
        R"("symmetric":true}}},)", R"("ignore":[)", ignored, "]}}");
    const auto config = QuantConfig::parse(parse_json(text, "t").value(), nullptr).value();
    const QuantConfig copy = config;
    const auto seen = [&](const char* name) { return copy.find(name) != nullptr; };
    const bool first = seen("model.layers.0.mlp.experts.0.up_proj");
    EXPECT_FALSE(seen("model.layers.0.mlp.experts.0.gate_proj"));
    EXPECT_EQ(seen("model.layers.0.mlp.experts.0.up_proj"), first);
    return std::pair(first, seen(module));
  };
  const char* other = "model.layers.0.mlp.experts.7.up_proj";
  EXPECT_EQ(find("", other), std::pair(true, true));
  EXPECT_EQ(find(R"("model.layers.0.mlp.experts.7.up_proj")", other), std::pair(true, false));
  EXPECT_EQ(find(R"("re:.*experts\\.[7]\\.up_proj")", other), std::pair(true, false));
  EXPECT_EQ(find(R"("re:.*experts\\.\\d+\\.up_proj")", other), std::pair(false, false));
}

TEST(ModulePattern, HostileRegexesEndQuickly) {
  const std::string name(300, 'a');
  const auto nested = ModulePattern::compressed_tensors("re:(a*)*(a*)*(a*)*b").value();
  EXPECT_FALSE(nested.matches(name));
  const auto deep = ModulePattern::compressed_tensors(concat("re:", std::string(100000, '(')));
  ASSERT_FALSE(deep);
  EXPECT_NE(deep.error().message.find("1024 bytes"), std::string::npos);
}

TEST(ModulePattern, RegexesMatchFromTheStartAsPythonsDo) {
  const auto matches = [](const char* regex, std::string_view name) {
    return ModulePattern::compressed_tensors(concat("re:", regex)).value().matches(name);
  };
  EXPECT_TRUE(matches("model", "model.layers.0"));
  EXPECT_FALSE(matches("layers", "model.layers.0"));
  EXPECT_TRUE(matches("(?i).*MLP$", "model.layers.0.mlp"));
  EXPECT_FALSE(matches(".*mlp$", "model.layers.0.mlp.gate"));
  // Lookahead, which RE2 does not know.
  EXPECT_TRUE(matches("(?!.*lm_head).*proj$", "model.layers.0.mlp.up_proj"));
  EXPECT_FALSE(matches("(?!.*lm_head).*proj$", "lm_head.up_proj"));
  EXPECT_FALSE(matches("(?!.*lm_head).*proj$", "model.layers.0.mlp.up_proj.weight"));
}

TEST(ModulePattern, Wildcards) {
  const auto star = ModulePattern::modelopt("*linear_attn*");
  EXPECT_TRUE(star.matches("model.layers.0.linear_attn.conv1d"));
  EXPECT_FALSE(star.matches("model.layers.0.self_attn"));
  EXPECT_TRUE(ModulePattern::modelopt("a?c*e").matches("abcde"));
  EXPECT_FALSE(ModulePattern::modelopt("a?c*e").matches("abcd"));
  EXPECT_TRUE(ModulePattern::modelopt("mtp*").matches("mtp.fc"));
  EXPECT_FALSE(ModulePattern::modelopt("mtp*").matches("x.mtp.fc"));
}

}  // namespace
}  // namespace nibble
