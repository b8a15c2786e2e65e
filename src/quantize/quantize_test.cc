// End to end on a small random checkpoint: layouts, dialects, recipes, sharing, refusals.
#include "quantize/quantize.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "model/config/config.h"
#include "model/config/quant_config.h"
#include "quantize/recipe/model_linears.h"
#include "quantize/testing/cpu_gptq_device.h"
#include "quantize/testing/test_runs.h"

namespace nibble {
namespace {

using test::Asked;
using test::decoded;
using test::files_of;
using test::Folder;
using test::Layout;
using test::names_of;
using test::Opened;
using test::recipe_of;
using test::relative_error;
using test::run;

/// Compares every linear of two models; returns how many are quantized in the second.
int expect_close(const Opened& source, const Opened& output, double bound) {
  const auto before = fused_linears(source.weights), after = fused_linears(output.weights);
  EXPECT_EQ(before.size(), after.size());
  int quantized = 0;
  for (size_t g = 0; g < before.size(); ++g)
    for (size_t i = 0; i < before[g].size(); ++i) {
      const LinearSource& now = *after[g][i];
      EXPECT_EQ(before[g][i]->module, now.module);
      const double error = relative_error(decoded(source, *before[g][i]), decoded(output, now));
      const bool rounded = now.scheme.weights == WeightFormat::nvfp4;
      quantized += rounded;
      if (rounded) {
        EXPECT_LT(error, bound) << now.module;
        EXPECT_GT(error, 0.0) << now.module;
      } else {
        EXPECT_EQ(error, 0.0) << now.module;
      }
    }
  return quantized;
}

TEST(Quantize, EveryLayoutInBothDialectsReopensCloseToTheSource) {
  for (const auto layout : {Layout::fused_experts, Layout::separate_experts, Layout::dense}) {
    const Folder folder;
    test::write_model(folder / "in", layout);
    const Opened source(folder / "in");
    for (const auto dialect : {Dialect::compressed_tensors, Dialect::modelopt}) {
      const auto output = folder / std::string(dialect_name(dialect));
      const auto report = run(folder / "in", output, {.dialect = dialect});
      ASSERT_TRUE(report.ok()) << report.error().message;
      const int expected = layout == Layout::dense ? 4 + 6 : 4 + 2 * 3 * (test::kExperts + 1);
      EXPECT_EQ(expect_close(source, Opened(output), 0.095), expected);
      EXPECT_EQ(report.value().total_rounded().tensors, expected);
      EXPECT_EQ(test::file_text(output / "tokenizer.json"), "{\"tokens\": 1}");
      EXPECT_TRUE(std::filesystem::exists(output / "recipe.yaml"));
      EXPECT_EQ(std::filesystem::exists(output / "hf_quant_config.json"),
                dialect == Dialect::modelopt);
    }
  }
}

TEST(Quantize, DialectsDecodeToTheSameBits) {
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts);
  ASSERT_TRUE(run(folder / "in", folder / "a").ok());
  ASSERT_TRUE(run(folder / "in", folder / "b", {.dialect = Dialect::modelopt}).ok());
  const Opened a(folder / "a"), b(folder / "b");
  const auto left = fused_linears(a.weights), right = fused_linears(b.weights);
  for (size_t g = 0; g < left.size(); ++g)
    for (size_t i = 0; i < left[g].size(); ++i)
      ASSERT_EQ(decoded(a, *left[g][i]), decoded(b, *right[g][i])) << left[g][i]->module;
}

TEST(Quantize, FusedGroupsShareOneGlobalScale) {
  const Folder folder;
  test::write_model(folder / "in", Layout::separate_experts,
                    [](const std::string& name, int64_t, float w) {  // the first of each is larger
                      const bool first = name.find("gate_proj") != std::string::npos ||
                                         name.find("q_proj") != std::string::npos;
                      return first ? 40 * w : w;
                    });
  ASSERT_TRUE(run(folder / "in", folder / "out").ok());
  const Opened source(folder / "in"), output(folder / "out");
  expect_close(source, output, 0.095);
  const auto global = [&](const LinearSource& linear) {
    return output.weights.load(linear).value().global_scale.value;
  };
  const AttentionSources& attention = output.weights.layers()[1].attention;
  EXPECT_EQ(global(attention.q), global(attention.k));
  EXPECT_EQ(global(attention.q), global(attention.v));
  for (const LayerSources& layer : output.weights.layers()) {
    EXPECT_EQ(global(layer.moe.shared.gate), global(layer.moe.shared.up));
    for (const MlpSources& expert : layer.moe.experts) {
      EXPECT_EQ(global(expert.gate), global(expert.up));
      EXPECT_NE(global(expert.gate), global(expert.down));  // a group has its own
    }
  }
}

TEST(Quantize, EverythingElseIsCopiedByteForByte) {
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts);
  ASSERT_TRUE(run(folder / "in", folder / "out").ok());
  const Opened source(folder / "in"), output(folder / "out");
  int copied = 0;
  for (const TensorEntry& entry : source.checkpoint.entries()) {
    const TensorEntry* now = output.checkpoint.find(entry.name);
    if (now == nullptr || now->dtype != entry.dtype) continue;
    const Tensor before = source.checkpoint.read(entry).value();
    const Tensor after = output.checkpoint.read(*now).value();
    EXPECT_EQ(
        std::memcmp(before.view().data, after.view().data, static_cast<size_t>(before.bytes())), 0)
        << entry.name;
    ++copied;
  }
  // All but 2 x 2 fused expert tensors, 2 x 3 shared ones and 4 of attention.
  EXPECT_EQ(copied, static_cast<int>(source.checkpoint.entries().size()) - 4 - 6 - 4);
  for (const char* name : {"mtp.fc.weight", "model.visual.blocks.0.attn.proj.weight"})
    EXPECT_NE(output.checkpoint.find(name), nullptr);
}

TEST(Quantize, ThreadsAndShardsDoNotChangeTensors) {
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts);
  ASSERT_TRUE(run(folder / "in", folder / "a", {.options = {.threads = 1}}).ok());
  ASSERT_TRUE(run(folder / "in", folder / "b", {.options = {.threads = 5}}).ok());
  ASSERT_TRUE(run(folder / "in", folder / "c", {.options = {.shard_bytes_max = 20000}}).ok());
  // Groups that are too large to hold, and those that all threads share.
  ASSERT_TRUE(run(folder / "in", folder / "d", {.options = {.held_bytes_max = 10000}}).ok());
  const auto expected = files_of(folder / "a");
  EXPECT_EQ(names_of(expected),
            (std::vector<std::string>{
                "README.md", "config.json", "model-00001-of-00001.safetensors",
                "model.safetensors.index.json", "model_head.safetensors", "model_mtp.safetensors",
                "quantize_hashes.json", "quantize_report.json", "quantize_report.svg",
                "recipe.yaml", "tokenizer.json"}));
  for (const char* other : {"b", "d"}) EXPECT_TRUE(files_of(folder / other) == expected) << other;
  const Opened a(folder / "a"), c(folder / "c");
  EXPECT_GT(c.checkpoint.files().size(), 3U);
  ASSERT_EQ(a.checkpoint.entries().size(), c.checkpoint.entries().size());
  for (const TensorEntry& entry : a.checkpoint.entries()) {
    const Tensor x = a.checkpoint.read(entry).value();
    const Tensor y = c.checkpoint.read(*c.checkpoint.find(entry.name)).value();
    ASSERT_EQ(std::memcmp(x.view().data, y.view().data, static_cast<size_t>(x.bytes())), 0);
  }
}

TEST(Quantize, ExpertsLeavingAFusedTensorMayStayPlain) {
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts);
  const auto report =
      run(folder / "in", folder / "out",
          {.recipe = recipe_of("  - match: 're:.*experts\\.\\d+\\.(gate|up)_proj$'\n"
                               "    weights: nvfp4\n"
                               "  - match: 're:.*experts\\.1\\.(gate|up)_proj$'\n"
                               "    weights: keep\n")});
  ASSERT_TRUE(report.ok()) << report.error().message;
  const Opened source(folder / "in"), output(folder / "out");
  EXPECT_EQ(expect_close(source, output, 0.095), 2 * 2 * (test::kExperts - 1));
  const Json& ignored = *output.checkpoint.config().find("quantization_config")->find("ignore");
  const auto lists = [&](const std::string& name) {
    return std::ranges::find(ignored.as_array(), Json(name)) != ignored.as_array().end();
  };
  EXPECT_TRUE(lists("model.language_model.layers.0.mlp.experts.1.up_proj"));
  EXPECT_TRUE(lists("model.language_model.layers.0.mlp.experts.2.down_proj"));
  EXPECT_FALSE(lists("model.language_model.layers.0.mlp.experts.2.up_proj"));
  for (const char* name : {"lm_head", "model.language_model.layers.0.mlp.gate",
                           "model.language_model.layers.0.linear_attn.in_proj_qkv",
                           "model.visual.blocks.0.attn.proj", "mtp.fc", "re:^mtp.*"})
    EXPECT_TRUE(lists(name)) << name;
}

TEST(Quantize, FusedExpertsThatStayAreIgnoredOneByOneToo) {
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts);
  const auto report =
      run(folder / "in", folder / "out",
          {.recipe = recipe_of("  - match: 're:.*self_attn.*'\n    weights: nvfp4\n")});
  ASSERT_TRUE(report.ok()) << report.error().message;
  const Opened output(folder / "out");
  EXPECT_EQ(expect_close(Opened(folder / "in"), output, 0.095), 4);
  const QuantConfig declared = QuantConfig::read(output.checkpoint).value();
  for (const char* expert : {"0.mlp.experts.0.gate_proj", "1.mlp.experts.3.down_proj"})
    EXPECT_EQ(declared.find(concat("model.language_model.layers.", expert)), nullptr) << expert;
  EXPECT_NE(declared.find("model.language_model.layers.1.self_attn.q_proj"), nullptr);
}

TEST(Quantize, ExpertsAreSingleTensorsInAllLayersIfInOne) {
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts);
  const Opened source(folder / "in");
  for (const auto dialect : {Dialect::compressed_tensors, Dialect::modelopt}) {
    const auto out = folder / std::string(dialect_name(dialect));
    const std::string rules = "  - match: 're:.*layers\\.1\\..*experts.*'\n    weights: nvfp4\n";
    ASSERT_TRUE(run(folder / "in", out, {.recipe = recipe_of(rules), .dialect = dialect}).ok());
    const Opened output(out);
    const std::string experts = "model.language_model.layers.0.mlp.experts";
    EXPECT_EQ(output.checkpoint.find(experts + ".gate_up_proj"), nullptr);
    EXPECT_NE(output.checkpoint.find(experts + ".3.down_proj.weight"), nullptr);
    EXPECT_EQ(expect_close(source, output, 0.095), 3 * test::kExperts);
    const Json& config = *output.checkpoint.config().find("quantization_config");
    const auto& ignored = config.find("ignore")->as_array();
    EXPECT_TRUE(
        std::ranges::any_of(ignored, [&](const Json& n) { return n.as_string() == experts; }));
  }
}

TEST(Quantize, FourBitActivationsAreDeclaredWithTheRecipesScale) {
  const Folder folder;
  test::write_model(folder / "in", Layout::separate_experts);
  for (const auto dialect : {Dialect::compressed_tensors, Dialect::modelopt}) {
    const auto output = folder / std::string(dialect_name(dialect));
    const auto report = run(folder / "in", output,
                            {.recipe = recipe_of("  - match: 're:.*self_attn.*'\n"
                                                 "    weights: nvfp4\n"
                                                 "    activations: nvfp4\n"
                                                 "    input_scale: 0.25\n"
                                                 "  - match: lm_head\n    weights: nvfp4\n"),
                             .dialect = dialect});
    ASSERT_TRUE(report.ok()) << report.error().message;
    const Opened model(output);
    const LinearSource& q = model.weights.layers()[1].attention.q;
    EXPECT_EQ(q.scheme, (QuantScheme{WeightFormat::nvfp4, ActivationFormat::nvfp4}));
    EXPECT_EQ(model.weights.load(q).value().input_scale.apply(1.0F), 0.25F);
    EXPECT_EQ(model.weights.head().scheme,
              (QuantScheme{WeightFormat::nvfp4, ActivationFormat::high}));
    EXPECT_EQ(report.value().warnings.size(), 1U);
  }
}

TEST(Quantize, MixedHasEightBitsWhereItSaysAndOneScalePerFusedGroup) {
  const Folder folder;
  test::write_model(
      folder / "in", Layout::fused_experts, [](const std::string& name, int64_t, float w) {
        const bool first =
            name.find("q_proj") != std::string::npos || name.find("in_proj_z") != std::string::npos;
        return first ? 40 * w : w;
      });
  const Recipe mixed = load_recipe("mixed").value();
  for (const auto dialect : {Dialect::compressed_tensors, Dialect::modelopt}) {
    const auto output = folder / std::string(dialect_name(dialect));
    const auto report = run(folder / "in", output, {.recipe = mixed, .dialect = dialect});
    ASSERT_TRUE(report.ok()) << report.error().message;
    const Opened source(folder / "in"), model(output);
    const bool modelopt = dialect == Dialect::modelopt;
    const QuantScheme fp8 = {WeightFormat::fp8_tensor,
                             modelopt ? ActivationFormat::fp8_tensor : ActivationFormat::fp8_token};
    const QuantScheme nvfp4 = {WeightFormat::nvfp4, ActivationFormat::high};
    const LayerSources& delta = model.weights.layers()[0];
    const LayerSources& full = model.weights.layers()[1];
    for (const LinearSource* linear :
         {&delta.delta_net.qkv, &delta.delta_net.z, &delta.delta_net.out, &full.attention.q,
          &full.attention.k, &full.attention.v, &full.attention.o}) {
      EXPECT_EQ(linear->scheme, fp8) << linear->module;
      EXPECT_EQ(model.weights.load(*linear).value().input_scale.value, 1.0F);
    }
    for (const LinearSource* linear : {&full.moe.experts[2].down, &delta.moe.shared.gate})
      EXPECT_EQ(linear->scheme, nvfp4) << linear->module;
    const WeightFormat by_row = modelopt ? WeightFormat::fp8_tensor : WeightFormat::fp8_channel;
    EXPECT_EQ(model.weights.head().scheme, (QuantScheme{by_row, fp8.activations}));
    for (const LinearSource* linear : {&delta.delta_net.a, &delta.delta_net.b, &full.moe.router})
      EXPECT_EQ(linear->scheme.weights, WeightFormat::plain) << linear->module;
    const auto scale = [&](const LinearSource& linear) {
      return *model.weights.load(linear).value().scales.view().as<float>();
    };
    EXPECT_EQ(scale(full.attention.q), scale(full.attention.k));
    EXPECT_EQ(scale(full.attention.q), scale(full.attention.v));
    EXPECT_NE(scale(full.attention.q), scale(full.attention.o));
    EXPECT_EQ(scale(delta.delta_net.qkv), scale(delta.delta_net.z));
    const double error = relative_error(decoded(source, source.weights.layers()[1].attention.q),
                                        decoded(model, full.attention.q));
    EXPECT_GT(error, 0.01);
    EXPECT_LT(error, 0.03);
    // The constant input scale is said only where it is written.
    EXPECT_EQ(report.value().warnings.size(), modelopt ? 1U : 0U);
  }
}

TEST(Quantize, MixedWithAnNvfp4HeadIsMixedButForThat) {
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts);
  for (const char* name : {"mixed", "mixed-nvfp4-head"})
    ASSERT_TRUE(run(folder / "in", folder / name, {.recipe = load_recipe(name).value()}).ok());
  const Opened mixed(folder / "mixed"), four(folder / "mixed-nvfp4-head");
  EXPECT_EQ(four.weights.head().scheme, (QuantScheme{WeightFormat::nvfp4, ActivationFormat::high}));
  for (const TensorEntry& entry : four.checkpoint.entries())
    if (!entry.name.starts_with("lm_head"))
      EXPECT_NE(mixed.checkpoint.find(entry.name), nullptr) << entry.name;
}

TEST(Quantize, AnFp8HeadLeavesEveryNvfp4TensorAsItIs) {
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts);
  ASSERT_TRUE(run(folder / "in", folder / "a", {.recipe = load_recipe("w4a4").value()}).ok());
  const Recipe fp8_head = load_recipe("w4a4-fp8-head").value();
  ASSERT_TRUE(run(folder / "in", folder / "b", {.recipe = fp8_head}).ok());
  const Opened a(folder / "a"), b(folder / "b");
  EXPECT_EQ(b.weights.head().scheme,
            (QuantScheme{WeightFormat::fp8_block, ActivationFormat::fp8_group}));
  int same = 0;
  for (const TensorEntry& entry : a.checkpoint.entries()) {
    if (entry.name.starts_with("lm_head")) continue;
    const Tensor x = a.checkpoint.read(entry).value();
    const Tensor y = b.checkpoint.read(*b.checkpoint.find(entry.name)).value();
    ASSERT_EQ(x.bytes(), y.bytes()) << entry.name;
    ASSERT_EQ(std::memcmp(x.view().data, y.view().data, static_cast<size_t>(x.bytes())), 0);
    ++same;
  }
  EXPECT_EQ(same + 2, static_cast<int>(b.checkpoint.entries().size()));
  const auto refused =
      run(folder / "in", folder / "c", {.recipe = fp8_head, .dialect = Dialect::modelopt});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("lm_head: expected a scheme that modelopt can say"),
            std::string::npos)
      << refused.error().message;
}

TEST(Quantize, ZeroAndTinyMatricesAreDefined) {
  const Folder folder;
  test::write_model(folder / "in", Layout::separate_experts,
                    [](const std::string& name, int64_t i, float w) {
                      if (name.find("experts.0.gate") != std::string::npos) return 0.0F;
                      if (name.find("experts.0.up") != std::string::npos) return 0.0F;
                      if (name.find("experts.1.down") != std::string::npos) return w * 0x1p-118F;
                      if (name.find("o_proj") != std::string::npos && i < 16) return 0.0F;
                      return w;
                    });
  const auto report = run(folder / "in", folder / "out");
  ASSERT_TRUE(report.ok()) << report.error().message;
  const Opened output(folder / "out");
  for (const auto& group : fused_linears(output.weights))
    for (const LinearSource* linear : group)
      for (const float w : decoded(output, *linear)) ASSERT_TRUE(std::isfinite(w));
  EXPECT_EQ(report.value().total_rounded().rounding.zero_blocks,
            2 * 2 * test::kWidth * test::kHidden / 16 + 1);
  EXPECT_FALSE(report.value().warnings.empty());
}

TEST(Quantize, BrokenWeightsAreRefusedByName) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity, 3e38F}) {
    const Folder folder;
    test::write_model(
        folder / "in", Layout::fused_experts, [&](const std::string& name, int64_t i, float w) {
          const bool here = name.find("1.mlp.experts.gate_up") != std::string::npos;
          return here && i == (2 * 2 * test::kWidth + 3) * test::kHidden + 5 ? bad : w;
        });
    const auto report = run(folder / "in", folder / "out");
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.error().code, ErrorCode::corrupt);
    EXPECT_NE(report.error().message.find(
                  "tensor model.language_model.layers.1.mlp.experts.gate_up_proj "
                  "(model.language_model.layers.1.mlp.experts.2.gate_proj row 3 column 5)"),
              std::string::npos)
        << report.error().message;
    EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  }
}

TEST(Quantize, CopiedTensorsMayHoldAnything) {
  const Folder folder;
  test::write_model(folder / "in", Layout::dense, [](const std::string& name, int64_t, float w) {
    return name == "mtp.fc.weight" ? std::numeric_limits<float>::infinity() : w;
  });
  EXPECT_TRUE(run(folder / "in", folder / "out").ok());
}

TEST(Quantize, OneFileHoldsEverythingWhenAskedTo) {
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts);
  ASSERT_TRUE(run(folder / "in", folder / "a", {.options = {.files = OutputFiles::one}}).ok());
  const Opened model(folder / "a");
  ASSERT_EQ(model.checkpoint.files().size(), 1U);
  EXPECT_EQ(model.checkpoint.files()[0], "model.safetensors");
  EXPECT_NE(model.checkpoint.find("mtp.fc.weight"), nullptr);
}

TEST(Quantize, ASourceThatChangesMeanwhileIsRefused) {
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts);
  Asked asked;
  bool touched = false;
  asked.options.progress = [&](int64_t done, int64_t total) {
    if (done * 2 < total || std::exchange(touched, true)) return;
    const auto file = folder / "in" / "model-00001-of-00005.safetensors";
    ASSERT_TRUE(std::filesystem::exists(file));
    std::filesystem::last_write_time(
        file, std::filesystem::last_write_time(file) + std::chrono::seconds(5));
  };
  const auto report = run(folder / "in", folder / "out", asked);
  ASSERT_FALSE(report.ok());
  EXPECT_NE(report.error().message.find("found changed ones"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
}

TEST(Quantize, MemoryIsFittedOrRefused) {
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts);
  const Checkpoint checkpoint = Checkpoint::open(folder / "in").value();
  const QuantPlan plan =
      plan_quantization(checkpoint, load_recipe("mixed").value(), Dialect::compressed_tensors)
          .value();
  QuantizeOptions options{.threads = 8};
  const int64_t before = quantize_memory_bytes(plan, options, nullptr);
  ASSERT_TRUE(fit_memory(plan, before, nullptr, options).ok());
  EXPECT_EQ(options.threads, 8);
  ASSERT_TRUE(fit_memory(plan, int64_t{90} << 20, nullptr, options).ok());
  EXPECT_LE(quantize_memory_bytes(plan, options, nullptr), int64_t{90} << 20);
  EXPECT_LT(options.threads, 8);
  const auto refused = fit_memory(plan, 1 << 20, nullptr, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::no_memory);
  int64_t widest = 0;  // each thread of gptq holds a moment of it in doubles, and its factor
  for (const FusedGroup& group : plan.rounded)
    for (const PlannedLinear& linear : group.linears) widest = std::max(widest, linear.source.cols);
  QuantizeOptions searched{.threads = 3}, fed_back{.algorithm = RoundAlgorithm::gptq, .threads = 3};
  const int64_t without = quantize_memory_bytes(plan, searched, nullptr);
  EXPECT_EQ(quantize_memory_bytes(plan, fed_back, nullptr) - without, 3 * 12 * widest * widest);
  const test::CpuGptqDevice all, some(test::kWidth);  // a device keeps its own
  EXPECT_EQ(quantize_memory_bytes(plan, fed_back, &all), without);
  ASSERT_GT(widest, test::kWidth);
  EXPECT_EQ(quantize_memory_bytes(plan, fed_back, &some) - without, 3 * 12 * widest * widest);
  ASSERT_TRUE(fit_memory(plan, without, &all, fed_back).ok());
  EXPECT_EQ(fed_back.threads, 3);
}

struct Refusal {
  std::string rules;
  std::string says;
};

TEST(Quantize, RecipesThatDoNotFitAreRefused) {
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts);
  const Refusal kRefusals[] = {
      {"  - match: 're:.*self_atn.*'\n    weights: nvfp4\n",
       "test line 4: \"re:.*self_atn.*\" matches no linear of this model; names look like "
       "model.language_model.layers.0."},
      {"  - match: 're:.*q_proj$'\n    weights: nvfp4\n",
       "self_attn.q_proj and model.language_model.layers.1.self_attn.k_proj: expected one scheme "
       "for both, because engines fuse them, found two"},
      {"  - match: 're:.*in_proj_qkv$'\n    weights: nvfp4\n", "expected one scheme for both"},
      {"  - match: lm_head\n    weights: keep\n", "leaves every linear as it is"},
      {"  - match: model.language_model.norm\n    weights: nvfp4\n", "matches no linear"},
  };
  for (const auto& refusal : kRefusals) {
    const auto report = run(folder / "in", folder / "out", {.recipe = recipe_of(refusal.rules)});
    ASSERT_FALSE(report.ok()) << refusal.rules;
    EXPECT_NE(report.error().message.find(refusal.says), std::string::npos)
        << report.error().message;
    EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  }
}

TEST(Quantize, FoldersThatDoNotFitAreRefused) {
  const Folder folder;
  test::write_model(folder / "in", Layout::dense);
  ASSERT_TRUE(run(folder / "in", folder / "out").ok());
  const auto again = run(folder / "out", folder / "twice");
  ASSERT_FALSE(again.ok());
  EXPECT_NE(again.error().message.find("expected an unquantized checkpoint"), std::string::npos);
  const auto onto = run(folder / "in", folder / "out");
  ASSERT_FALSE(onto.ok());
  EXPECT_EQ(onto.error().code, ErrorCode::invalid_argument);
  const auto self = run(folder / "in", folder / "in");
  ASSERT_FALSE(self.ok());
  EXPECT_EQ(self.error().code, ErrorCode::invalid_argument);
  EXPECT_TRUE(Checkpoint::open(folder / "in").ok());
}

TEST(Quantize, SearchBeatsAmaxOnEveryKind) {
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts);
  const auto best = run(folder / "in", folder / "a").value();
  const auto plain =
      run(folder / "in", folder / "b", {.options = {.algorithm = RoundAlgorithm::amax}}).value();
  for (size_t i = 0; i + 1 < best.kinds.size(); ++i) {
    EXPECT_LT(best.kinds[i].relative_error(), 0.9 * plain.kinds[i].relative_error());
    EXPECT_EQ(best.kinds[i].amax_relative_error(), plain.kinds[i].relative_error());
  }
}

}  // namespace
}  // namespace nibble
