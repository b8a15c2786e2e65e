// The MTP layer in a recipe: rows that speak of it make it NVFP4 or FP8 in the standard names,
// which every reader of this program binds, verifies and converts; without such rows it is copied.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <tuple>

#include "model/synthetic/synthetic_checkpoint.h"
#include "quantize/convert/convert.h"
#include "quantize/recipe/model_linears.h"
#include "quantize/testing/test_runs.h"
#include "quantize/verify/verify.h"
#include "testing/source_dir.h"

namespace nibble {
namespace {

using test::Folder;
using test::Layout;
using test::Opened;
using test::recipe_of;

constexpr const char* kExperts =
    "  - match: 're:.*\\.mlp\\.(experts\\.\\d+\\.|shared_expert\\.)?(gate|up|down)_proj$'\n"
    "    weights: nvfp4\n";

std::string mtp_rule(std::string_view weights) {
  return concat(
      "  - match: "
      "'re:mtp\\.(fc|layers\\.\\d+\\.(self_attn\\.[qkvo]_proj|mlp\\.(experts\\.\\d+\\.|shared_"
      "expert\\.)?(gate|up|down)_proj))$'\n    weights: ",
      weights, weights == "fp8" ? "\n    input_scale: 1\n" : "\n");
}

std::string findings(const std::filesystem::path& folder) {
  std::string text;
  for (const Finding& finding : verify_checkpoint(folder).value().findings)
    if (finding.severity == Severity::error)
      text += concat(finding.subject, ": ", finding.text, "\n");
  return text;
}

void write_source(const std::filesystem::path& folder, Layout layout) {
  write_synthetic_checkpoint(test::model_config(layout), folder,
                             {.layout = WeightLayout::bf16, .threads = 1})
      .value();
}

/// Compares the layer of a quantized checkpoint with that of its source.
void expect_near(const Weights& source, const Opened& output, WeightFormat format, double most) {
  ASSERT_TRUE(output.weights.mtp());
  const auto before = fused_linears(source), after = fused_linears(output.weights);
  ASSERT_EQ(before.size(), after.size());
  int rounded = 0;
  for (size_t g = 0; g < before.size(); ++g)
    for (size_t i = 0; i < before[g].size(); ++i) {
      const LinearSource& now = *after[g][i];
      if (!is_mtp(now.module)) continue;
      const bool gate = now.module.ends_with("gate");
      const WeightFormat found = now.scheme.weights;  // one dialect has one FP8 scale for each row
      EXPECT_EQ(found == WeightFormat::fp8_channel ? WeightFormat::fp8_tensor : found,
                gate ? WeightFormat::plain : format)
          << now.module;
      const LinearWeight weight = source.load(*before[g][i]).value();
      std::vector<float> truth(static_cast<size_t>(weight.rows * weight.cols));
      dequantize_rows(weight, 0, weight.rows, truth.data());
      const double error = test::relative_error(truth, test::decoded(output, now));
      EXPECT_LT(error, gate ? 1e-9 : most) << now.module;
      if (!gate) {
        EXPECT_GT(error, 0.0) << now.module;
      }
      rounded += gate ? 0 : 1;
    }
  EXPECT_GE(rounded, 5 + 3);
}

TEST(QuantizeMtp, RowsThatSpeakOfItQuantizeIt) {
  for (const Layout layout : {Layout::separate_experts, Layout::dense}) {
    const Folder folder;
    write_source(folder / "in", layout);
    const Checkpoint source = Checkpoint::open(folder / "in").value();
    ModelConfig config = ModelConfig::parse(source.config()).value();
    config.draft_layers = 1;
    const Weights plain = Weights::bind(source, config).value();
    for (const auto& [word, format, most] :
         {std::tuple{"nvfp4", WeightFormat::nvfp4, 0.11}, {"fp8", WeightFormat::fp8_tensor, 0.03}})
      for (const Dialect dialect : {Dialect::compressed_tensors, Dialect::modelopt}) {
        SCOPED_TRACE(concat(word, ", ", dialect_name(dialect)));
        const auto output = folder / concat(word, dialect_name(dialect));
        const auto report =
            test::run(folder / "in", output,
                      {.recipe = recipe_of(concat(kExperts, mtp_rule(word))), .dialect = dialect});
        ASSERT_TRUE(report.ok()) << report.error().message;
        expect_near(plain, Opened(output), format, most);
        EXPECT_EQ(findings(output), "");
        const std::string declared = test::file_text(output / "config.json");
        EXPECT_EQ(declared.find("^mtp"), std::string::npos);
        EXPECT_EQ(declared.find("\"mtp*\""), std::string::npos);
        EXPECT_LT(declared.size(), 12000U);  // by patterns, not by experts
      }
  }
}

TEST(QuantizeMtp, ExpertsOfAFusedTensorAreSeparated) {
  const auto in = std::filesystem::path(NIBBLE_SOURCE_DIR) / "tests/golden/model-mtp/moe-fused";
  const Checkpoint source = Checkpoint::open(in).value();
  ModelConfig config = ModelConfig::parse(source.config()).value();
  config.draft_layers = 1;
  const Weights plain = Weights::bind(source, config).value();
  const Folder folder;
  const auto report = test::run(in, folder / "out", {.recipe = recipe_of(mtp_rule("fp8"))});
  ASSERT_TRUE(report.ok()) << report.error().message;
  const Opened output(folder / "out");
  EXPECT_EQ(output.checkpoint.find("mtp.layers.0.mlp.experts.gate_up_proj"), nullptr);
  EXPECT_NE(output.checkpoint.find("mtp.layers.0.mlp.experts.5.up_proj.weight_scale"), nullptr);
  expect_near(plain, output, WeightFormat::fp8_tensor, 0.03);
  EXPECT_EQ(findings(folder / "out"), "");
}

TEST(QuantizeMtp, OtherRowsLeaveItAlone) {
  const Folder folder;
  write_source(folder / "in", Layout::separate_experts);
  const auto report = test::run(
      folder / "in", folder / "out",
      {.recipe = recipe_of(concat(kExperts, "  - match: 're:.*'\n", "    weights: nvfp4\n",
                                  "  - match: 're:.*in_proj_[ab]$'\n", "    weights: keep\n"))});
  ASSERT_TRUE(report.ok()) << report.error().message;
  const Checkpoint before = Checkpoint::open(folder / "in").value();
  const Checkpoint after = Checkpoint::open(folder / "out").value();
  int copied = 0;
  for (const TensorEntry& entry : before.entries()) {
    if (!is_mtp(entry.name)) continue;
    const TensorEntry* now = after.find(entry.name);
    ASSERT_NE(now, nullptr) << entry.name;
    Tensor one = before.read(entry).value(), other = after.read(*now).value();
    EXPECT_TRUE(std::ranges::equal(one.span(), other.span())) << entry.name;
    ++copied;
  }
  EXPECT_GT(copied, 20);
  EXPECT_NE(test::file_text(folder / "out" / "config.json").find("re:^mtp.*"), std::string::npos);
}

TEST(QuantizeMtp, ARowForALayerThatIsNotThereIsRefused) {
  const Folder folder;
  Json config = test::model_config(Layout::dense);
  Json text = *config.find("text_config");
  text.set("mtp_num_hidden_layers", 0);
  config.set("text_config", std::move(text));
  write_synthetic_checkpoint(config, folder / "in", {.layout = WeightLayout::bf16, .threads = 1})
      .value();
  const auto refused = test::run(folder / "in", folder / "out",
                                 {.recipe = recipe_of(concat(kExperts, mtp_rule("nvfp4")))});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("matches no linear"), std::string::npos)
      << refused.error().message;
}

/// A config.json may speak of a layer that the checkpoint has left out: a row that is optional then
/// does nothing, and another one is refused by its name.
TEST(QuantizeMtp, ARowForALayerThatWasLeftOut) {
  const Folder folder;
  Json config = test::model_config(Layout::dense);
  Json without = *config.find("text_config");
  without.set("mtp_num_hidden_layers", 0);
  Json bare = config;
  bare.set("text_config", std::move(without));
  write_synthetic_checkpoint(bare, folder / "in", {.layout = WeightLayout::bf16, .threads = 1})
      .value();
  std::ofstream(folder / "in" / "config.json") << config.dump();
  const auto quantized = [&](std::string_view more) {
    return test::run(folder / "in", folder / "out",
                     {.recipe = recipe_of(concat(kExperts, mtp_rule("nvfp4"), more))});
  };
  const auto refused = quantized("");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("matches no linear"), std::string::npos)
      << refused.error().message;
  const auto report = quantized("    optional: true\n");
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(findings(folder / "out"), "");
}

TEST(QuantizeMtp, SplitOfAFusedPairIsRefused) {
  const Folder folder;
  write_source(folder / "in", Layout::dense);
  const auto refused = test::run(
      folder / "in", folder / "out",
      {.recipe = recipe_of(
           concat(kExperts,
                  "  - match: 're:mtp\\..*\\.up_proj$'\n    weights: fp8\n    input_scale: 1\n"))});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("mtp.layers.0.mlp.gate_proj"), std::string::npos)
      << refused.error().message;
}

TEST(QuantizeMtp, DialectsAreConvertedWithIt) {
  const Folder folder;
  write_source(folder / "in", Layout::separate_experts);
  const Recipe recipe = recipe_of(concat(kExperts, mtp_rule("nvfp4")));
  ASSERT_TRUE(test::run(folder / "in", folder / "out", {.recipe = recipe}).ok());
  const Checkpoint quantized = Checkpoint::open(folder / "out").value();
  const auto converted = convert(quantized, Dialect::modelopt, folder / "other", {});
  ASSERT_TRUE(converted.ok()) << converted.error().message;
  EXPECT_EQ(findings(folder / "other"), "");
  const Opened one(folder / "out"), other(folder / "other");
  const auto left = fused_linears(one.weights), right = fused_linears(other.weights);
  ASSERT_EQ(left.size(), right.size());
  int compared = 0;
  for (size_t g = 0; g < left.size(); ++g)
    for (size_t i = 0; i < left[g].size(); ++i) {
      if (!is_mtp(left[g][i]->module)) continue;
      EXPECT_LT(test::relative_error(decoded(one, *left[g][i]), decoded(other, *right[g][i])),
                1e-6);
      ++compared;
    }
  EXPECT_GT(compared, 10);
}

/// One engine takes one global scale for gate and up: another one is an error, here too.
TEST(QuantizeMtp, VerifySeesItsFusedScales) {
  const Folder folder;
  write_source(folder / "in", Layout::dense);
  const Recipe recipe = recipe_of(concat(kExperts, mtp_rule("nvfp4")));
  ASSERT_TRUE(test::run(folder / "in", folder / "out", {.recipe = recipe}).ok());
  const Checkpoint quantized = Checkpoint::open(folder / "out").value();
  const TensorEntry& scale = *quantized.find("mtp.layers.0.mlp.up_proj.weight_global_scale");
  const auto file = folder / "out" / quantized.files()[static_cast<size_t>(scale.file)];
  std::string bytes = test::file_text(file);
  float value = 0.0F;
  std::memcpy(&value, &bytes[scale.offset], sizeof value);
  value *= 2.0F;
  std::memcpy(&bytes[scale.offset], &value, sizeof value);
  std::ofstream(file, std::ios::binary) << bytes;
  const std::string found = findings(folder / "out");
  EXPECT_NE(found.find("mtp.layers.0.mlp.up_proj"), std::string::npos) << found;
  EXPECT_NE(found.find("global scale"), std::string::npos) << found;
}

}  // namespace
}  // namespace nibble
