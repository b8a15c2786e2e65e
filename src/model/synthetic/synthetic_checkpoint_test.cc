// An output of synth binds, loads and is sound in every layout; the same seed gives the same bytes.
#include "model/synthetic/synthetic_checkpoint.h"

#include <gtest/gtest.h>

#include <set>

#include "checkpoint/checkpoint.h"
#include "model/config/module_pattern.h"
#include "model/config/quant_config.h"
#include "model/weights/sound_weights.h"
#include "testing/dequantized.h"
#include "testing/test_files.h"
#include "testing/tiny_checkpoint.h"

namespace nibble {
namespace {

struct Opened {
  std::unique_ptr<Checkpoint> checkpoint;
  ModelConfig config;
  Weights weights;
};

Opened write_and_open(const std::filesystem::path& folder, const SyntheticOptions& options) {
  Json config = TinyCheckpoint::moe().config;
  config.set("vision_config",
             parse_json(R"({"depth": 2, "hidden_size": 8, "intermediate_size": 16, "in_channels": 3,
                            "num_heads": 2, "patch_size": 4, "temporal_patch_size": 2,
                            "spatial_merge_size": 2, "num_position_embeddings": 9,
                            "out_hidden_size": 32})",
                        "test")
                 .value());
  for (const char* id :
       {"image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id"})
    config.set(id, 5);
  write_synthetic_checkpoint(config, folder, options).value();
  Opened opened;
  opened.checkpoint = std::make_unique<Checkpoint>(Checkpoint::open(folder).value());
  opened.config = ModelConfig::parse(opened.checkpoint->config()).value();
  opened.config.draft_layers = opened.config.mtp_layers;
  if (options.scope == SyntheticScope::folder)
    opened.config.vision =
        VisionConfig::parse(config, opened.config.hidden, opened.config.vocab_rows).value();
  opened.weights = Weights::bind(*opened.checkpoint, opened.config).value();
  return opened;
}

/// Other engines want each linear to be in a group or among those that are ignored.
void expect_plain_linears_ignored(const Opened& opened) {
  std::vector<ModulePattern> ignored;
  const Json* names = opened.checkpoint->config().find("quantization_config")->find("ignore");
  ASSERT_NE(names, nullptr);
  for (const Json& text : names->as_array())
    ignored.push_back(ModulePattern::compressed_tensors(text.as_string()).value());
  const auto check = [&](const LinearSource& linear) {
    const bool found =
        std::ranges::any_of(ignored, [&](const auto& one) { return one.matches(linear.module); });
    EXPECT_EQ(found, linear.scheme.weights == WeightFormat::plain) << linear.module;
  };
  const Weights& weights = opened.weights;
  for (const LayerSources& layer : weights.layers()) {
    const AttentionSources& a = layer.attention;
    const DeltaNetSources& d = layer.delta_net;
    const MlpSources& expert = layer.moe.experts[1];
    for (const LinearSource* each :
         {&a.q, &a.k, &a.v, &a.o, &d.qkv, &d.z, &d.a, &d.b, &d.out, &layer.moe.router,
          &layer.moe.shared_gate, &layer.moe.shared.up, &expert.gate, &expert.up, &expert.down})
      if (each->present()) check(*each);
  }
  for (const LinearSource* each :
       {&weights.embedding(), &weights.head(), &weights.mtp()->joined,
        &weights.mtp()->layer.attention.q, &weights.vision()->blocks[1].fc1.weight})
    check(*each);
}

class SyntheticInputs : public testing::Test {
 protected:
  TemporaryFolder folder_;
};

class SyntheticCheckpoint : public testing::TestWithParam<WeightLayout> {
 protected:
  TemporaryFolder folder_;
};

TEST_P(SyntheticCheckpoint, BindsAsItWasNamedAndIsSound) {
  const Opened opened = write_and_open(folder_ / "model", {.layout = GetParam(), .threads = 2});
  const SyntheticWeights named = synthetic_weights(opened.config, formats_of(GetParam()));
  const QuantConfig declared = QuantConfig::read(*opened.checkpoint).value();
  const auto same = [&](const LinearSource& bound, const LinearSource& source) {
    EXPECT_EQ(declared.find(source.module) != nullptr, source.scheme.weights != WeightFormat::plain)
        << source.module;
    EXPECT_EQ(bound.module, source.module);
    EXPECT_EQ(bound.scheme, source.scheme) << source.module;
    EXPECT_EQ(bound.values, source.values);
    EXPECT_EQ(bound.scales, source.scales);
    const LinearWeight weight = opened.weights.load(bound).value();
    EXPECT_TRUE(check_sound(weight).ok());
    const std::vector<float> values = dequantized(weight);
    double squares = 0.0;
    for (const float x : values) squares += double{x} * x;
    const double deviation = std::sqrt(squares / static_cast<double>(values.size()));
    const double expected = bound.module.ends_with("embed_tokens")
                                ? 1.0
                                : 1.0 / std::sqrt(static_cast<double>(weight.cols));
    EXPECT_NEAR(deviation / expected, 1.0, 0.35) << source.module;
  };
  same(opened.weights.embedding(), named.embedding);
  same(opened.weights.head(), named.head);
  for (size_t i = 0; i < named.layers.size(); ++i) {
    const LayerSources& bound = opened.weights.layers()[i];
    const LayerSources& source = named.layers[i];
    if (source.attention.q.present()) same(bound.attention.q, source.attention.q);
    if (source.delta_net.qkv.present()) same(bound.delta_net.qkv, source.delta_net.qkv);
    if (source.delta_net.a.present()) same(bound.delta_net.a, source.delta_net.a);
    same(bound.moe.router, source.moe.router);
    for (size_t e = 0; e < source.moe.experts.size(); ++e)
      same(bound.moe.experts[e].down, source.moe.experts[e].down);
    same(bound.moe.shared.gate, source.moe.shared.gate);
  }
  ASSERT_TRUE(opened.weights.mtp() && named.mtp);
  const MtpSources& mtp = *opened.weights.mtp();
  same(mtp.joined, named.mtp->joined);
  same(mtp.layer.attention.o, named.mtp->layer.attention.o);
  same(mtp.layer.moe.experts[1].up, named.mtp->layer.moe.experts[1].up);
  for (const VectorSource* norm : {&mtp.embedding_norm, &mtp.hidden_norm, &mtp.norm})
    EXPECT_TRUE(std::ranges::all_of(opened.weights.load(*norm).value(), [](float w) {
      return std::abs(w) < 0.6F;
    })) << norm->name;
}

TEST_F(SyntheticInputs, AreDeclaredWhereTheyAreAskedFor) {
  const auto open = [&](const char* name, WeightLayout layout, SyntheticFp8 fp8) {
    return write_and_open(folder_ / name,
                          {.layout = layout,
                           .declared = {".q_proj", ".gate_proj", ".up_proj", "lm_head"},
                           .fp8 = fp8,
                           .threads = 2});
  };
  const Opened four = open("four", WeightLayout::nvfp4, SyntheticFp8::by_token);
  const MlpSources& expert = four.weights.layers()[0].moe.experts[1];
  for (const LinearSource* source : {&expert.gate, &expert.up, &four.weights.head()})
    EXPECT_EQ(source->scheme.activations, ActivationFormat::nvfp4) << source->module;
  EXPECT_EQ(expert.down.scheme.activations, ActivationFormat::high);
  EXPECT_EQ(four.weights.load_factors(expert.gate).value().input_scale.value,
            four.weights.load_factors(expert.up).value().input_scale.value);
  // Room for magnitudes up to (6 * 448) / 16 = 168, and a number for each of the inputs.
  std::set<float> scales;
  const auto see = [&](const LinearSource& source) {
    const float scale = four.weights.load_factors(source).value().input_scale.value;
    EXPECT_GE(scale, 16.0F) << source.module;
    EXPECT_LT(scale, 80.0F) << source.module;
    scales.insert(scale);
  };
  for (const LayerSources& layer : four.weights.layers())
    for (const MlpSources& each : layer.moe.experts) see(each.gate);
  EXPECT_GT(scales.size(), 1U);
  const auto inputs_of = [&](const char* name, SyntheticFp8 fp8) {
    const Opened eight = open(name, WeightLayout::mixed, fp8);
    const AttentionSources& attention = eight.weights.layers()[1].attention;
    EXPECT_EQ(attention.k.scheme.activations, ActivationFormat::high);
    EXPECT_TRUE(check_sound(eight.weights.load(attention.q).value()).ok());
    const std::string config = eight.checkpoint->config().dump();
    EXPECT_EQ(config.find(R"("block_structure":[128,128])") != std::string::npos,
              fp8 == SyntheticFp8::by_block)
        << config;
    return attention.q.scheme.activations;
  };
  EXPECT_EQ(inputs_of("token", SyntheticFp8::by_token), ActivationFormat::fp8_token);
  EXPECT_EQ(inputs_of("tensor", SyntheticFp8::by_tensor), ActivationFormat::fp8_tensor);
  EXPECT_EQ(inputs_of("block", SyntheticFp8::by_block), ActivationFormat::fp8_group);
}

TEST_P(SyntheticCheckpoint, AFolderHasWhatOtherEnginesWant) {
  const Opened opened = write_and_open(folder_ / "model", {.layout = GetParam(),
                                                           .scope = SyntheticScope::folder,
                                                           .files = {{"tokenizer.json", "{}"}},
                                                           .threads = 2});
  EXPECT_TRUE(std::filesystem::exists(folder_ / "model" / "tokenizer.json"));
  for (const char* name :
       {"patch_embed.proj.weight", "blocks.1.attn.qkv.bias", "merger.linear_fc2.weight"})
    EXPECT_NE(opened.checkpoint->find(concat("model.visual.", name)), nullptr) << name;
  const SyntheticWeights named = synthetic_weights(opened.config, formats_of(GetParam()));
  ASSERT_TRUE(opened.weights.vision() && named.vision);
  const VisionSources& tower = *opened.weights.vision();
  EXPECT_EQ(tower.patches.weight.values, named.vision->patches.weight.values);
  EXPECT_EQ(tower.blocks[1].fc2.weight.module, "model.visual.blocks.1.mlp.linear_fc2");
  EXPECT_EQ(opened.weights.load(tower.blocks[1].fc2.weight).value().values.shape(), (Shape{8, 16}));
  EXPECT_EQ(opened.weights.load(tower.patches.weight).value().values.shape(), (Shape{8, 96}));
  if (GetParam() != WeightLayout::bf16) expect_plain_linears_ignored(opened);
  const LayerSources& layer = opened.weights.layers()[1];
  const QuantScheme token = {WeightFormat::fp8_tensor, ActivationFormat::fp8_token};
  const QuantScheme by_row = {WeightFormat::fp8_channel, ActivationFormat::fp8_token};
  if (GetParam() == WeightLayout::mixed) {
    EXPECT_EQ(layer.attention.k.scheme, token);
    EXPECT_EQ(opened.weights.head().scheme, by_row);
  }
  if (GetParam() == WeightLayout::fp8) {
    EXPECT_EQ(layer.attention.k.scheme, token);
    EXPECT_EQ(layer.moe.experts[0].up.scheme, by_row);
    for (const MlpSources& expert : layer.moe.experts)
      for (const LinearSource* part : {&expert.gate, &expert.up, &expert.down})
        EXPECT_TRUE(check_sound(opened.weights.load(*part).value()).ok()) << part->module;
  }
}

TEST_P(SyntheticCheckpoint, DependsOnItsSeedAlone) {
  const auto head_of = [&](const char* name, uint64_t seed, int threads) {
    const Opened opened =
        write_and_open(folder_ / name, {.layout = GetParam(), .seed = seed, .threads = threads});
    const LinearWeight weight = opened.weights.load(opened.weights.head()).value();
    const auto* bytes = weight.values.as<std::byte>();
    return std::vector<std::byte>(bytes, bytes + weight.values.bytes());
  };
  const auto first = head_of("a", 1, 1);
  EXPECT_EQ(first, head_of("b", 1, 2));
  EXPECT_NE(first, head_of("c", 2, 1));
}

TEST_F(SyntheticInputs, MoreLayersOfMtpThanOneAreRefused) {
  Json config = TinyCheckpoint::moe().config;
  Json text = *config.find("text_config");
  text.set("mtp_num_hidden_layers", 2);
  config.set("text_config", std::move(text));
  const auto refused = write_synthetic_checkpoint(config, folder_ / "model", {});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("mtp_num_hidden_layers: expected 0 or 1, found 2"),
            std::string::npos)
      << refused.error().message;
}

INSTANTIATE_TEST_SUITE_P(Layouts, SyntheticCheckpoint,
                         testing::Values(WeightLayout::mixed, WeightLayout::mixed_nvfp4_head,
                                         WeightLayout::nvfp4, WeightLayout::w4a4, WeightLayout::fp8,
                                         WeightLayout::bf16),
                         [](const auto& test) {
                           std::string name(weight_layout_name(test.param));
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace nibble
