// A converted folder says of itself what quantize would say, and how it was made.
#include "quantize/convert/converted_papers.h"

#include <gtest/gtest.h>

#include "quantize/convert/convert.h"
#include "quantize/convert/convert_head.h"
#include "quantize/report/model_card.h"
#include "quantize/testing/test_runs.h"

namespace nibble {
namespace {

using test::file_text;
using test::Folder;
using test::Layout;
using test::run;

QuantizeReport report_of(const std::filesystem::path& folder) {
  const Json json = parse_json(file_text(folder / "quantize_report.json"), "report").value();
  return parse_report(json).value();
}

void convert_folder(const std::filesystem::path& from, Dialect target,
                    const std::filesystem::path& to) {
  const auto done = convert(Checkpoint::open(from).value(), target, to, {});
  ASSERT_TRUE(done.ok()) << done.error().message;
}

void convert_head_of(const std::filesystem::path& from, const std::filesystem::path& source,
                     HeadFormat format, const std::filesystem::path& to) {
  const Checkpoint checkpoint = Checkpoint::open(from).value();
  const auto done = convert_head(checkpoint, Checkpoint::open(source).value(), format, to);
  ASSERT_TRUE(done.ok()) << done.error().message;
}

int64_t tensor_bytes(const std::filesystem::path& folder) {
  const Checkpoint checkpoint = Checkpoint::open(folder).value();
  int64_t bytes = 0;
  for (const TensorEntry& entry : checkpoint.entries()) bytes += entry.bytes;
  return bytes;
}

/// All of it but how it was made.
std::string contents(QuantizeReport report) {
  report.commands.clear();
  report.recipe.clear();
  report.about.clear();
  report.warnings.clear();
  return report.json().dump_pretty();
}

TEST(Report, IsReadAsItWasWritten) {
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts,
                    [](const std::string& tensor, int64_t index, float drawn) {
                      return tensor == "lm_head.weight" && index < 16 ? 0.0F : drawn;
                    });
  for (const char* recipe : {"mixed", "w4a4"}) {
    const auto written =
        run(folder / "in", folder / recipe, {.recipe = load_recipe(recipe).value()});
    ASSERT_TRUE(written.ok()) << written.error().message;
    const std::string text = file_text(folder / recipe / "quantize_report.json");
    EXPECT_EQ(report_of(folder / recipe).json().dump_pretty(), text);
    EXPECT_EQ(report_of(folder / recipe).chart(), written.value().chart());
  }
}

TEST(Report, OddOnesAreRefused) {
  const Folder folder;
  test::write_model(folder / "in", Layout::dense);
  ASSERT_TRUE(run(folder / "in", folder / "out").ok());
  const std::string text = file_text(folder / "out" / "quantize_report.json");
  const Json sound = parse_json(text, "report").value();
  struct Row {
    const char* key;
    Json value;
  };
  const Row kRows[] = {{"base", 1},           {"recipe_status", "best"},    {"format", "gguf"},
                       {"algorithm", "luck"}, {"kinds", Json::Array{}},     {"kinds", 3},
                       {"layers", "none"},    {"tensor_bytes_out", -1},     {"commands", Json()},
                       {"warnings", "x"},     {"layers", Json::Array{{1}}}, {"recipe", Json()}};
  for (const Row& row : kRows) {
    Json bad = sound;
    bad.set(row.key, row.value);
    const auto read = parse_report(bad);
    ASSERT_FALSE(read.ok()) << row.key << " " << row.value.dump();
    EXPECT_EQ(read.error().message.find('\n'), std::string::npos);
  }
}

TEST(ConvertedPapers, OfTheOtherDialect) {
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts);
  const test::Asked there{.recipe = load_recipe("w4a4").value(), .dialect = Dialect::modelopt};
  ASSERT_TRUE(run(folder / "in", folder / "here", {.recipe = load_recipe("w4a4").value()}).ok());
  ASSERT_TRUE(run(folder / "in", folder / "there", there).ok());
  std::string card = file_text(folder / "here" / "README.md");
  card = card_with_measurement(card, {.text = "a.txt", .text_sha256 = "", .activations = "bf16"});
  write_file_atomically(folder / "here" / "README.md", card).value();
  convert_folder(folder / "here", Dialect::modelopt, folder / "converted");

  EXPECT_EQ(contents(report_of(folder / "converted")), contents(report_of(folder / "there")));
  const QuantizeReport report = report_of(folder / "converted");
  EXPECT_EQ(report.dialect, Dialect::modelopt);
  EXPECT_EQ(report.bytes_out, tensor_bytes(folder / "converted"));
  EXPECT_EQ(report.commands, (std::vector<std::string>{
                                 "nibble quantize in DST --recipe w4a4 --format compressed-tensors "
                                 "--algorithm search",
                                 "nibble convert SRC DST --format modelopt"}));
  card = file_text(folder / "converted" / "README.md");
  for (const char* words :
       {"\n- modelopt\n", "vllm serve DIR --quantization modelopt\n", "--format modelopt\n",
        "| a.txt (SHA-256 ) | 0 | bf16 |", "\nMeasure it against"})
    EXPECT_NE(card.find(words), std::string::npos) << words << "\n" << card;
  EXPECT_EQ(card.find("- compressed-tensors\n"), std::string::npos);
  const std::string recipe = file_text(folder / "converted" / "recipe.yaml");
  EXPECT_NE(recipe.find("#   nibble convert SRC DST --format modelopt\n"), std::string::npos);
  EXPECT_EQ(recipe.find("# Made by", 5), std::string::npos) << recipe;
}

TEST(ConvertedPapers, OfAnotherHead) {
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts);
  ASSERT_TRUE(run(folder / "in", folder / "bf16", {.recipe = load_recipe("w4a4").value()}).ok());
  ASSERT_TRUE(
      run(folder / "in", folder / "fp8", {.recipe = load_recipe("w4a4-fp8-head").value()}).ok());
  std::string card = file_text(folder / "bf16" / "README.md");
  card = card_with_measurement(card, {.text = "a.txt", .text_sha256 = "", .activations = "bf16"});
  write_file_atomically(folder / "bf16" / "README.md", card).value();
  convert_head_of(folder / "bf16", folder / "in", HeadFormat::fp8_block, folder / "there");
  convert_head_of(folder / "there", folder / "in", HeadFormat::bf16, folder / "back");

  EXPECT_EQ(contents(report_of(folder / "there")), contents(report_of(folder / "fp8")));
  EXPECT_EQ(contents(report_of(folder / "back")), contents(report_of(folder / "bf16")));
  EXPECT_EQ(report_of(folder / "there").bytes_out, tensor_bytes(folder / "there"));
  EXPECT_EQ(file_text(folder / "there" / "quantize_report.svg"),
            file_text(folder / "fp8" / "quantize_report.svg"));
  card = file_text(folder / "there" / "README.md");
  EXPECT_NE(card.find("| lm_head | FP8 128x128 | 1 |"), std::string::npos) << card;
  EXPECT_NE(card.find("--head fp8-block --source BASE\n"), std::string::npos) << card;
  EXPECT_NE(card.find("; then lm_head FP8 128x128.\n"), std::string::npos) << card;
  EXPECT_EQ(card.find("a.txt"), std::string::npos) << "measured with another head";
  card = file_text(folder / "back" / "README.md");
  EXPECT_EQ(card.find("| lm_head |"), std::string::npos) << card;
  EXPECT_NE(card.find("; then lm_head as it was.\n"), std::string::npos) << card;
}

// Files of other tools: their card speaks of what they were.
TEST(ConvertedPapers, OfAForeignFile) {
  const Folder folder;
  test::write_model(folder / "in", Layout::dense);
  ASSERT_TRUE(run(folder / "in", folder / "here", {.dialect = Dialect::modelopt}).ok());
  const std::string theirs =
      "---\nlicense: mit\nbase_model: Qwen/Qwen3.6-27B\n---\nserve with --quantization modelopt\n";
  write_file_atomically(folder / "here" / "README.md", theirs).value();
  write_file_atomically(folder / "here" / "quantize_report.json", "{\"recipe\": 1}").value();
  convert_folder(folder / "here", Dialect::compressed_tensors, folder / "there");
  EXPECT_EQ(file_text(folder / "there" / "README.base.md"), theirs);
  for (const char* stale : {"quantize_report.json", "quantize_report.svg", "recipe.yaml"})
    EXPECT_FALSE(std::filesystem::exists(folder / "there" / stale)) << stale;
  const std::string card = file_text(folder / "there" / "README.md");
  for (const char* words :
       {"license: mit\nbase_model: Qwen/Qwen3.6-27B\n", "- compressed-tensors\n",
        "# Qwen3.6-27B, converted\n", "    nibble convert SRC DST --format compressed-tensors\n",
        "| NVFP4 | 10 |", "How it was quantized is not known here"})
    EXPECT_NE(card.find(words), std::string::npos) << words << "\n" << card;
  EXPECT_EQ(card.find("--quantization"), std::string::npos) << card;
}

}  // namespace
}  // namespace nibble
