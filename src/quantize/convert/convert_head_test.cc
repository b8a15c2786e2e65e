// Another head: the same files as quantize would have written, the others linked.
#include "quantize/convert/convert_head.h"

#include <gtest/gtest.h>

#include "model/synthetic/synthetic_checkpoint.h"
#include "quantize/testing/test_runs.h"

namespace nibble {
namespace {

using test::files_of;
using test::Folder;
using test::Layout;
using test::Opened;
using test::run;

Result<HeadReport> convert_folder(const std::filesystem::path& folder,
                                  const std::filesystem::path& source, HeadFormat format,
                                  const std::filesystem::path& output) {
  const Checkpoint checkpoint = TRY(Checkpoint::open(folder));
  const Checkpoint from = TRY(Checkpoint::open(source));
  return convert_head(checkpoint, from, format, output);
}

/// Recipe, report and card tell how a file was made, not what it holds.
test::Files contents(const std::filesystem::path& folder) {
  test::Files files = files_of(folder);
  for (const char* name : {"recipe.yaml", "quantize_hashes.json", "quantize_report.json",
                           "quantize_report.svg", "README.md"})
    files.erase(name);
  return files;
}

TEST(ConvertHead, GivesTheFilesThatQuantizeWouldHaveWritten) {
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts);
  ASSERT_TRUE(run(folder / "in", folder / "bf16", {.recipe = load_recipe("w4a4").value()}).ok());
  ASSERT_TRUE(
      run(folder / "in", folder / "fp8", {.recipe = load_recipe("w4a4-fp8-head").value()}).ok());
  const auto there =
      convert_folder(folder / "bf16", folder / "in", HeadFormat::fp8_block, folder / "there");
  ASSERT_TRUE(there.ok()) << there.error().message;
  EXPECT_GT(there.value().relative_error, 0.01);
  EXPECT_TRUE(contents(folder / "there") == contents(folder / "fp8"));
  ASSERT_TRUE(
      convert_folder(folder / "there", folder / "in", HeadFormat::bf16, folder / "back").ok());
  EXPECT_TRUE(contents(folder / "back") == contents(folder / "bf16"));
  for (const char* file : {"model-00001-of-00001.safetensors", "model_mtp.safetensors"})
    EXPECT_TRUE(std::filesystem::equivalent(folder / "back" / file, folder / "bf16" / file));
  EXPECT_EQ(load_recipe((folder / "there" / "recipe.yaml").string()).value().rules.size(), 3U);
}

TEST(ConvertHead, NvfpFourInBothDialects) {
  const Folder folder;
  test::write_model(folder / "in", Layout::separate_experts);
  for (const auto dialect : {Dialect::compressed_tensors, Dialect::modelopt}) {
    const auto from = folder / concat("from", dialect_name(dialect));
    const auto to = folder / concat("to", dialect_name(dialect));
    ASSERT_TRUE(run(folder / "in", from, {.dialect = dialect}).ok());
    const auto report = convert_folder(from, folder / "in", HeadFormat::nvfp4, to);
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_EQ(report.value().linked_files, 2);
    EXPECT_EQ(Opened(to).weights.head().scheme,
              (QuantScheme{WeightFormat::nvfp4, ActivationFormat::high}));
    EXPECT_EQ(Opened(from).weights.head().scheme.weights, WeightFormat::plain);
  }
  const auto refused =
      convert_folder(folder / "frommodelopt", folder / "in", HeadFormat::fp8_block, folder / "no");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(
      refused.error().message.find("expected a format that modelopt can say, found fp8-block"),
      std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder / "no"));
}

/// A quantized MTP layer is declared as it is.
TEST(ConvertHead, KeepsWhatIsDeclaredOfTheMtpLayer) {
  const Folder folder;
  write_synthetic_checkpoint(test::model_config(Layout::separate_experts), folder / "in",
                             {.layout = WeightLayout::bf16, .threads = 1})
      .value();
  const std::string rules =
      "  - match: 're:.*\\.mlp\\.(experts\\.\\d+\\.|shared_expert\\.)?(gate|up|down)_proj$'\n"
      "    weights: nvfp4\n"
      "  - match: 're:mtp\\..*\\.mlp\\.(experts\\.\\d+\\.|shared_expert\\.)?(gate|up|down)_proj$'\n"
      "    weights: nvfp4\n";
  const Recipe plain = test::recipe_of(rules);
  const Recipe nvfp4 = test::recipe_of(rules + "  - match: lm_head\n    weights: nvfp4\n");
  for (const auto dialect : {Dialect::compressed_tensors, Dialect::modelopt}) {
    const auto from = folder / concat("from", dialect_name(dialect));
    const auto to = folder / concat("to", dialect_name(dialect));
    const auto whole = folder / concat("whole", dialect_name(dialect));
    ASSERT_TRUE(run(folder / "in", from, {.recipe = plain, .dialect = dialect}).ok());
    ASSERT_TRUE(run(folder / "in", whole, {.recipe = nvfp4, .dialect = dialect}).ok());
    const auto report = convert_folder(from, folder / "in", HeadFormat::nvfp4, to);
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_TRUE(contents(to) == contents(whole)) << dialect_name(dialect);
    EXPECT_TRUE(Opened(to).weights.mtp());
  }
}

/// A block is the most that is read at once; no head is so large that it fills this one.
TEST(ConvertHead, ABlockIsNoLargerThanTheHead) {
  const Folder folder;
  test::write_model(folder / "in", Layout::dense);
  const Recipe fp8 = load_recipe("w4a4-fp8-head").value();
  ASSERT_TRUE(run(folder / "in", folder / "fp8", {.recipe = fp8}).ok());
  const Checkpoint checkpoint = Checkpoint::open(folder / "fp8").value();
  const Checkpoint source = Checkpoint::open(folder / "in").value();
  ASSERT_TRUE(
      convert_head(checkpoint, source, HeadFormat::bf16, folder / "out", int64_t{1} << 60).ok());
  const Checkpoint out = Checkpoint::open(folder / "out").value();
  const Tensor now = out.read(*out.find("lm_head.weight")).value();
  const Tensor before = source.read(*source.find("lm_head.weight")).value();
  ASSERT_EQ(now.bytes(), before.bytes());
  EXPECT_TRUE(
      std::ranges::equal(std::span(now.as<uint8_t>(), static_cast<size_t>(now.bytes())),
                         std::span(before.as<uint8_t>(), static_cast<size_t>(before.bytes()))));
}

TEST(ConvertHead, RefusesWhatDoesNotFit) {
  const Folder folder;
  test::write_model(folder / "in", Layout::dense);
  ASSERT_TRUE(run(folder / "in", folder / "one", {.options = {.files = OutputFiles::one}}).ok());
  const auto shared =
      convert_folder(folder / "one", folder / "in", HeadFormat::nvfp4, folder / "no");
  ASSERT_FALSE(shared.ok());
  EXPECT_NE(shared.error().message.find("expected a file with the head alone"), std::string::npos)
      << shared.error().message;
  ASSERT_TRUE(run(folder / "in", folder / "q").ok());
  const auto quantized =
      convert_folder(folder / "q", folder / "q", HeadFormat::nvfp4, folder / "no");
  EXPECT_TRUE(quantized.ok()) << "its head is still plain";
  const auto twice = convert_folder(folder / "q", folder / "no", HeadFormat::bf16, folder / "no2");
  ASSERT_FALSE(twice.ok());
  EXPECT_NE(twice.error().message.find("expected an unquantized lm_head"), std::string::npos);
}

/// Then nothing would be quantized: what came out would be the base.
TEST(ConvertHead, RefusesToLeaveNothingQuantized) {
  const Folder folder;
  test::write_model(folder / "in", Layout::dense);
  const Recipe recipe = test::recipe_of("  - match: lm_head\n    weights: nvfp4\n");
  for (const auto dialect : {Dialect::compressed_tensors, Dialect::modelopt}) {
    const auto from = folder / concat("from", dialect_name(dialect));
    ASSERT_TRUE(run(folder / "in", from, {.recipe = recipe, .dialect = dialect}).ok());
    const auto refused = convert_folder(from, folder / "in", HeadFormat::bf16, folder / "no");
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
    EXPECT_EQ(
        refused.error().message,
        concat(from.string(), ": expected a quantized linear beside lm_head, found none; use ",
               (folder / "in").string(), " itself"));
    EXPECT_FALSE(std::filesystem::exists(folder / "no"));
    EXPECT_TRUE(convert_folder(from, folder / "in", HeadFormat::nvfp4,
                               folder / concat("to", dialect_name(dialect)))
                    .ok());
  }
}

}  // namespace
}  // namespace nibble
