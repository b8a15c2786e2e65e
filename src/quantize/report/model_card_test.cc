// The card and the picture of an output: front matter first, nothing invented.
#include "quantize/report/model_card.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "quantize/testing/test_runs.h"

namespace nibble {
namespace {

TEST(ModelCard, FrontMatterIsReadFromTheBase) {
  const char* card =
      "---\nlicense: apache-2.0\nlicense_link: \"https://x/LICENSE\"\nempty:\n---\n# T\n"
      "license: no\n";
  EXPECT_EQ(front_matter(card, "license"), "apache-2.0");
  EXPECT_EQ(front_matter(card, "license_link"), "https://x/LICENSE");
  EXPECT_EQ(front_matter(card, "empty"), "");
  EXPECT_EQ(front_matter(card, "lic"), "");
  EXPECT_EQ(front_matter("license: mit\n", "license"), "");
}

TEST(ModelCard, NamesOfHubCachesAreTheHubs) {
  EXPECT_EQ(hub_name("/c/models--Qwen--Qwen3.6-35B-A3B/snapshots/abc"), "Qwen/Qwen3.6-35B-A3B");
  EXPECT_EQ(hub_name("/c/my-model/"), "my-model");
  EXPECT_EQ(hub_name("/c/my-model"), "my-model");
  EXPECT_EQ(hub_name("Qwen/Qwen3.6-35B-A3B"), "Qwen/Qwen3.6-35B-A3B");
  EXPECT_EQ(hub_name("Qwen/Qwen3.6-35B-A3B/"), "Qwen/Qwen3.6-35B-A3B");
  EXPECT_EQ(hub_name("../my-model"), "my-model");
  EXPECT_EQ(hub_name("a/b/my-model"), "my-model");
  const char* card =
      "---\nlicense_link: https://huggingface.co/Qwen/Qwen3.6-27B/blob/main/L\n---\n";
  EXPECT_EQ(hub_name("/c/Qwen3.6-27B", card), "Qwen/Qwen3.6-27B");
  EXPECT_EQ(hub_name("/c/another", card), "another");
}

TEST(ModelCard, MeasurementsBecomeRows) {
  const std::string card = "# T\n\n## Quality\n\nMeasure it.\n\n## Run it\n";
  CardMeasurement measured{.text = "a.txt",
                           .text_sha256 = std::string(64, 'e'),
                           .positions = 100,
                           .activations = "bf16",
                           .kl_mean = 0.25,
                           .top1 = 0.5};
  const std::string one = card_with_measurement(card, measured);
  const std::string row = "| a.txt (SHA-256 eeeeeeeeeeee) | 100 | bf16 | 0.250000 |";
  EXPECT_NE(one.find("|\n" + row), std::string::npos) << one;
  EXPECT_TRUE(one.ends_with("|\n\nMeasure it.\n\n## Run it\n")) << one;
  measured.kl_mean = 0.125;
  const std::string again = card_with_measurement(one, measured);
  EXPECT_EQ(again.size(), one.size());
  EXPECT_NE(again.find("| bf16 | 0.125000 |"), std::string::npos);
  measured.activations = "declared";
  const std::string both = card_with_measurement(again, measured);
  EXPECT_NE(both.find("| bf16 | 0.125000 |"), std::string::npos);
  EXPECT_NE(both.find("|\n| a.txt (SHA-256 eeeeeeeeeeee) | 100 | declared | 0.125000 |"),
            std::string::npos)
      << both;
  EXPECT_EQ(card_with_measurement("no section", measured), "no section");
}

TEST(ModelCard, MeasurementsThatAreNoneAreNotKept) {
  for (const char* card : {"# T\n", "# T\n\n## Quality\n\nMeasure it: see below.\n\n| a | b |\n"})
    EXPECT_EQ(card_measurements(card), "") << card;
  const std::string measured =
      card_with_measurement("## Quality\n\nMeasure it.\n", {.text = "a.txt", .kl_mean = 0.25});
  const std::string kept = card_measurements(measured);
  EXPECT_NE(kept.find("| a.txt (SHA-256 "), std::string::npos) << measured;
  EXPECT_TRUE(kept.ends_with("|\n")) << kept;
  EXPECT_EQ(kept.find("Measure it."), std::string::npos) << kept;
}

/// One linear of the experts is enough: transformers drops what belongs to it.
TEST(ModelCard, AForeignCardKnowsExpertsBesideOtherLinears) {
  QuantDeclaration declaration;
  declaration.quantized = {
      {.name = "model.layers.0.mlp.experts.0.down_proj", .scheme = {WeightFormat::nvfp4}},
      {.name = "model.layers.0.self_attn.o_proj", .scheme = {WeightFormat::nvfp4}}};
  const Json config = parse_json("{}", "a config").value();
  const auto card = [&] {
    return foreign_card({.base_card = "",
                         .base_name = "a/b",
                         .declaration = declaration,
                         .command = "nibble convert",
                         .config = config});
  };
  EXPECT_NE(card().find("it drops the global scales"), std::string::npos) << card();
  declaration.quantized.erase(declaration.quantized.begin());
  EXPECT_EQ(card().find("it drops the global scales"), std::string::npos) << card();
}

TEST(ModelCard, CommandsFitTheDialectAndTheSchemes) {
  const test::Folder folder;
  test::write_model(folder / "in", test::Layout::fused_experts);
  struct Row {
    const char* recipe;
    Dialect dialect;
    const char* vllm;
    const char* sglang;
    const char* transformers;
  };
  constexpr Row kRows[] = {
      {"w4a4", Dialect::compressed_tensors, "serve DIR\n", "--model-path DIR\n", "it drops"},
      {"mixed", Dialect::compressed_tensors, "serve DIR\n", "--model-path DIR\n", "it fails"},
      {"fp8", Dialect::compressed_tensors, "serve DIR\n", "--model-path DIR\n", nullptr},
      {"w4a4", Dialect::modelopt, "serve DIR --quantization modelopt\n",
       "--model-path DIR --quantization modelopt_fp4\n", "it does not read"},
      {"w4a16", Dialect::modelopt, "serve DIR --quantization modelopt\n",
       "--model-path DIR --quantization modelopt_fp4 --moe-runner-backend marlin\n",
       "it does not read"},
      {"fp8", Dialect::modelopt, "serve DIR --quantization modelopt\n",
       "--model-path DIR --quantization modelopt_fp8\n", "it does not read"},
      {"mixed", Dialect::modelopt, "serve DIR --quantization modelopt\n",
       "--model-path DIR --quantization modelopt_mixed --moe-runner-backend marlin\n",
       "it does not read"}};
  for (const Row& row : kRows) {
    const auto out = folder / concat(row.recipe, dialect_name(row.dialect));
    const test::Asked asked{.recipe = load_recipe(row.recipe).value(), .dialect = row.dialect};
    ASSERT_TRUE(test::run(folder / "in", out, asked).ok());
    const std::string card = test::file_text(out / "README.md");
    EXPECT_NE(card.find(concat("vllm ", row.vllm)), std::string::npos) << card;
    EXPECT_NE(card.find(row.sglang), std::string::npos) << card;
    const size_t why = card.find("Not transformers (5.23): ");
    EXPECT_EQ(why != std::string::npos, row.transformers != nullptr) << card;
    if (row.transformers != nullptr) EXPECT_EQ(card.find(row.transformers), why + 25) << card;
  }
}

TEST(ModelCard, EveryOutputHasACardAndAPicture) {
  const test::Folder folder;
  test::write_model(folder / "in", test::Layout::fused_experts);
  write_file_atomically(folder / "in" / "README.md", "---\nlicense: mit\n---\nBase card.\n")
      .value();
  write_file_atomically(folder / "in" / "LICENSE", "words").value();
  ASSERT_TRUE(
      test::run(folder / "in", folder / "out", {.recipe = load_recipe("w4a4").value()}).ok());
  const std::string card = test::file_text(folder / "out" / "README.md");
  EXPECT_NE(card.find("notice files are beside this one"), std::string::npos) << card;
  std::filesystem::remove(folder / "in" / "LICENSE");
  ASSERT_TRUE(
      test::run(folder / "in", folder / "bare", {.recipe = load_recipe("w4a4").value()}).ok());
  const std::string bare = test::file_text(folder / "bare" / "README.md");
  EXPECT_EQ(bare.find("beside this one"), std::string::npos) << bare;
  EXPECT_NE(bare.find("The licence is the base model's. "), std::string::npos) << bare;
  for (const char* words :
       {"---\nlicense: mit\nbase_model: in\n", "- nvfp4\n- compressed-tensors\n",
        "status free text only", "No calibration data was used", "recipe's constants",
        "| mlp.experts.up_proj | NVFP4, 4-bit activations | 8 |",
        "both are measured, `declared` and `bf16`", "vllm serve DIR\n"})
    EXPECT_NE(card.find(words), std::string::npos) << words << "\n" << card;
  EXPECT_EQ(test::file_text(folder / "out" / "README.base.md"),
            "---\nlicense: mit\n---\nBase card.\n");
  EXPECT_EQ(test::file_text(folder / "out" / "LICENSE"), "words");
  const std::string picture = test::file_text(folder / "out" / "quantize_report.svg");
  EXPECT_TRUE(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
  size_t lines = 0;
  for (size_t at = picture.find("<polyline"); at != std::string::npos;
       at = picture.find("<polyline", at + 1))
    ++lines;
  EXPECT_EQ(lines, 10U) << "a line per kind";
  const Json report =
      parse_json(test::file_text(folder / "out" / "quantize_report.json"), "report").value();
  EXPECT_EQ(report.find("layers")->as_array().size(), 6U * 2 + 4);
}

}  // namespace
}  // namespace nibble
