// Layouts by name, and the one that a published file declares.
#include "model/weights/synthetic_weights.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "model/config/quant_config.h"
#include "testing/source_dir.h"

namespace nibble {
namespace {

Json golden(const std::string& name) {
  const std::string path = concat(NIBBLE_SOURCE_DIR "/tests/", name);
  const std::string text = read_text_file(path, uint64_t{4} << 20).value();
  return parse_json(text, path).value();
}

void add(const MlpSources& mlp, std::vector<const LinearSource*>& linears) {
  for (const LinearSource* linear : {&mlp.gate, &mlp.up, &mlp.down}) linears.push_back(linear);
}

std::vector<const LinearSource*> linears_of(const SyntheticWeights& weights) {
  std::vector<const LinearSource*> linears = {&weights.head};
  for (const LayerSources& layer : weights.layers) {
    const AttentionSources& a = layer.attention;
    const DeltaNetSources& d = layer.delta_net;
    for (const LinearSource* linear : {&a.q, &a.k, &a.v, &a.o, &d.qkv, &d.z, &d.b, &d.a, &d.out,
                                       &layer.moe.router, &layer.moe.shared_gate})
      linears.push_back(linear);
    add(layer.dense_mlp, linears);
    add(layer.moe.shared, linears);
    for (const MlpSources& expert : layer.moe.experts) add(expert, linears);
  }
  std::erase_if(linears, [](const LinearSource* linear) { return !linear->present(); });
  return linears;
}

TEST(SyntheticWeights, W4a4IsWhatPublishedFilesDeclare) {
  ModelConfig config = ModelConfig::parse(golden("golden/configs/qwen3.6-35b-a3b.json")).value();
  config.layers.resize(4);  // three of a delta net and one of attention
  config.moe->experts = 2;
  const SyntheticWeights weights =
      synthetic_weights(config, formats_of(parse_weight_layout("w4a4").value()));
  for (const char* name : {"redhatai-qwen3.6-35b-a3b-nvfp4", "inferrouter-qwen3.6-35b-a3b-nvfp4",
                           "ig1-qwen3.5-35b-a3b-nvfp4"}) {
    const Json file = golden(concat("published/", name, ".json"));
    const QuantConfig declared = QuantConfig::parse(file, nullptr).value();
    int packed = 0;
    for (const LinearSource* linear : linears_of(weights)) {
      const DeclaredScheme* scheme = declared.find(linear->module);
      const bool four = scheme != nullptr && scheme->weight_bits == 4;
      ASSERT_EQ(linear->scheme.weights, four ? WeightFormat::nvfp4 : WeightFormat::plain)
          << name << ", " << linear->module;
      packed += four ? 1 : 0;
    }
    EXPECT_EQ(packed, 4 * 3 * (2 + 1) + 4) << name;
  }
}

TEST(SyntheticWeights, DeclaredScalesOfRowsAreHeeded) {
  const auto format_of_head = [](const char* declared) {
    const Json config =
        parse_json(concat(R"({"quantization_config":)", declared, "}"), "t").value();
    return declared_formats(config).value()("lm_head");
  };
  const auto grouped = [&](const char* weights) {
    return format_of_head(
        concat(
            R"({"quant_method":"compressed-tensors","config_groups":{"a":{"targets":["lm_head"],)",
            R"("weights":{"type":"float","num_bits":)", weights, "}}}}")
            .c_str());
  };
  EXPECT_EQ(grouped(R"(8,"strategy":"channel")"), WeightFormat::fp8_channel);
  EXPECT_EQ(grouped(R"(8,"strategy":"tensor")"), WeightFormat::fp8_tensor);
  EXPECT_EQ(grouped(R"(4,"strategy":"tensor_group")"), WeightFormat::nvfp4);
  EXPECT_EQ(
      format_of_head(R"({"quant_method":"modelopt","quant_algo":"FP8_PER_CHANNEL_PER_TOKEN"})"),
      WeightFormat::fp8_channel);
  EXPECT_EQ(format_of_head(R"({"quant_method":"modelopt","quant_algo":"FP8"})"),
            WeightFormat::fp8_tensor);
}

TEST(SyntheticWeights, LayoutsHaveNames) {
  for (const char* name : {"mixed", "mixed-nvfp4-head", "nvfp4", "w4a4", "fp8", "bf16"})
    EXPECT_EQ(weight_layout_name(parse_weight_layout(name).value()), name);
  for (const char* name : {"", "W4A4", "int4", "w4a4 "}) {
    const auto refused = parse_weight_layout(name);
    ASSERT_FALSE(refused.ok()) << name;
    EXPECT_NE(refused.error().message.find("w4a4"), std::string::npos) << refused.error().message;
  }
}

}  // namespace
}  // namespace nibble
