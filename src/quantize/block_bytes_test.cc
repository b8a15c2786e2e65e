// The block size leaves no trace in the output: tensors of many blocks, work stopped between two
// blocks of one tensor, and one tensor of a real shape in blocks of the default size.
#include "quantize/block_bytes.h"

#include <gtest/gtest.h>

#include <atomic>

#include "quantize/convert/convert.h"
#include "quantize/convert/convert_head.h"
#include "quantize/group_rounder.h"
#include "quantize/testing/test_runs.h"

namespace nibble {
namespace {

using test::Asked;
using test::Folder;
using test::Layout;
using test::run;

/// Two rows of the test model and a part of a third.
constexpr int64_t kTiny = 300;

/// Everything but the files with sums of errors, which are added up in the order of blocks.
test::Files contents(const std::filesystem::path& folder) {
  test::Files files = test::files_of(folder);
  for (const char* name : {"recipe.yaml", "quantize_hashes.json", "quantize_report.json",
                           "quantize_report.svg", "README.md"})
    files.erase(name);
  return files;
}

Asked asked_for(const std::string& rules, int64_t block_bytes, int64_t held_bytes_max) {
  Asked asked{.recipe = test::recipe_of(rules)};
  asked.options.threads = 2;
  asked.options.block_bytes = block_bytes;
  asked.options.held_bytes_max = held_bytes_max;
  return asked;
}

const std::string kEveryFormat =
    "  - match: 're:.*\\.mlp\\.(experts\\.\\d+\\.|shared_expert\\.)?(gate|up|down)_proj$'\n"
    "    weights: nvfp4\n"
    "  - match: 're:.*\\.self_attn\\.[qkv]_proj$'\n    weights: fp8-block\n"
    "  - match: 're:.*\\.linear_attn\\.(in_proj_qkv|in_proj_z|out_proj)$'\n    weights: fp8\n"
    "    input_scale: 1\n";

TEST(BlockBytes, TinyBlocksGiveTheSameBytesAsDefaultOnes) {
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts);
  constexpr int64_t kAllHeld = int64_t{256} << 20, kNoneHeld = 1024;
  const auto whole =
      run(folder / "in", folder / "whole", asked_for(kEveryFormat, kBlockBytes, kAllHeld));
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  for (const int64_t held : {kAllHeld, kNoneHeld}) {
    const auto output = folder / concat("held", held);
    const auto report = run(folder / "in", output, asked_for(kEveryFormat, kTiny, held));
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_TRUE(contents(output) == contents(folder / "whole")) << held;
  }
}

TEST(BlockBytes, WorkStoppedInsideATensorGoesOnToTheSameBytes) {
  const Folder folder;
  test::write_model(folder / "in", Layout::dense);
  const auto run_until = [&](const std::string& output, int64_t block_bytes, int asks_max) {
    std::atomic<int> asks = 0;
    Asked asked = asked_for(kEveryFormat, block_bytes, 1024);
    asked.options.journal_seconds = 0;
    asked.options.cancelled = [&asks, asks_max] { return ++asks > asks_max; };
    const auto report = run(folder / "in", folder / output, asked);
    return report.ok() ? asks.load() : 0;
  };
  const int asks_default = run_until("default", kBlockBytes, 1 << 30);
  const int asks_tiny = run_until("whole", kTiny, 1 << 30);
  ASSERT_GT(asks_tiny, 10 * asks_default) << "most stops fall inside a tensor";
  const auto expected = test::files_of(folder / "whole");
  for (const int first : {7, asks_tiny / 5, asks_tiny / 2}) {
    const auto output = concat("stop", first);
    ASSERT_EQ(run_until(output, kTiny, first), 0);
    ASSERT_EQ(run_until(output, kTiny, first + 1), 0) << "stopped twice";
    ASSERT_GT(run_until(output, kTiny, 1 << 30), 0);
    EXPECT_TRUE(test::files_of(folder / output) == expected) << first;
  }
}

/// A run that goes on takes these facts over from the journal.
TEST(LinearOutcome, IsReadAsItWasWritten) {
  const LinearOutcome outcome{.statistics = {.weight_squares = 1.5,
                                             .error_squares = 2.5,
                                             .amax_error_squares = 3.5,
                                             .zero_blocks = 4,
                                             .flushed_blocks = 5},
                              .fallback = "no data"};
  const std::string text = outcome.json().dump();
  EXPECT_EQ(text, R"([1.5,2.5,3.5,4,5,"no data"])");
  EXPECT_EQ(LinearOutcome::parse(parse_json(text, "test").value()).value().json().dump(), text);
  for (const char* wrong :
       {"{}", R"([1,2,3,4,5])", R"([1,2,3,4,5,"",6])", R"(["",2,3,4,5,""])", R"([1,"",3,4,5,""])",
        R"([1,2,"",4,5,""])", R"([1,2,3,4.5,5,""])", R"([1,2,3,4,5.5,""])", "[1,2,3,4,5,6]"})
    EXPECT_FALSE(LinearOutcome::parse(parse_json(wrong, "test").value()).ok()) << wrong;
}

TEST(BlockBytes, ConvertCopiesTinyBlocks) {
  const Folder folder;
  test::write_model(folder / "in", Layout::dense);
  ASSERT_TRUE(run(folder / "in", folder / "q").ok());
  const Checkpoint checkpoint = Checkpoint::open(folder / "q").value();
  const Checkpoint source = Checkpoint::open(folder / "in").value();
  ASSERT_TRUE(convert(checkpoint, Dialect::modelopt, folder / "whole", {}).ok());
  ASSERT_TRUE(convert(checkpoint, Dialect::modelopt, folder / "tiny", {.block_bytes = kTiny}).ok());
  EXPECT_TRUE(test::files_of(folder / "tiny") == test::files_of(folder / "whole"));
  for (const auto format : {HeadFormat::bf16, HeadFormat::fp8_block, HeadFormat::nvfp4}) {
    const auto name = concat("head", static_cast<int>(format));
    ASSERT_TRUE(convert_head(checkpoint, source, format, folder / (name + "whole")).ok());
    ASSERT_TRUE(convert_head(checkpoint, source, format, folder / (name + "tiny"), kTiny).ok());
    EXPECT_TRUE(contents(folder / (name + "tiny")) == contents(folder / (name + "whole"))) << name;
  }
}

/// k_proj of Qwen3.5-27B: 819 rows are a default block of it, which is no whole number of bands.
TEST(BlockBytes, ATensorOfARealShapeIsRoundedInDefaultBlocks) {
  constexpr int64_t kRows = 1024, kCols = 5120;
  const Folder folder;
  {
    std::vector<uint16_t> values(kRows * kCols);
    std::minstd_rand random(27);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = float_to_bf16((static_cast<float>(random() % 4001) - 2000.0F) *
                                (i / kCols < kRows / 2 ? 1e-5F : 3e-5F));
    CheckpointWriter writer =
        CheckpointWriter::create(folder / "in", {{"x.weight", DType::bf16, {kRows, kCols}}})
            .value();
    ASSERT_TRUE(writer.append("x.weight", std::as_bytes(std::span(values))).ok());
    ASSERT_TRUE(writer.finish(test::model_config(Layout::dense)).ok());
  }
  const Checkpoint source = Checkpoint::open(folder / "in").value();
  const LinearSource linear{.module = "x", .rows = kRows, .cols = kCols, .values = "x.weight"};
  ThreadPool threads(2);
  for (const QuantScheme& scheme :
       {QuantScheme{WeightFormat::nvfp4, ActivationFormat::high},
        QuantScheme{WeightFormat::fp8_block, ActivationFormat::fp8_group},
        QuantScheme{WeightFormat::fp8_channel, ActivationFormat::fp8_token}}) {
    const int format = static_cast<int>(scheme.weights);
    const auto rounded = [&](int64_t block_bytes) {
      const auto output = folder / concat("out", format, "-", block_bytes);
      CheckpointWriter writer =
          CheckpointWriter::create(
              output, stored_tensors("x", kRows, kCols, scheme, Dialect::compressed_tensors))
              .value();
      const GroupRounder rounder(source, writer,
                                 {.algorithm = RoundAlgorithm::amax,
                                  .block_bytes = block_bytes,
                                  .check = [] { return Result<void>(); }});
      const FusedGroup group{.linears = {{.source = linear, .kind = "x", .becomes = {scheme}}},
                             .bytes = kRows * kCols * 2};
      EXPECT_TRUE(rounder.round(group, threads).ok());
      EXPECT_TRUE(writer.finish(test::model_config(Layout::dense)).ok());
      return test::files_of(output);
    };
    EXPECT_TRUE(rounded(kBlockBytes) == rounded(int64_t{1} << 30)) << format;
  }
}

}  // namespace
}  // namespace nibble
