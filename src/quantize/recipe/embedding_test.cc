// Recipes that quantize the embedding table: lab only, FP8 in blocks, in a file that says so.
#include <gtest/gtest.h>

#include "quantize/testing/test_runs.h"
#include "quantize/verify/compare.h"
#include "quantize/verify/verify.h"

namespace nibble {
namespace {

using test::Folder;
using test::Layout;
using test::Opened;
using test::run;

constexpr const char* kTable = "model.language_model.embed_tokens";

Recipe lab(const std::string& rules, const char* status = "lab") {
  return parse_recipe(concat("name: test\nstatus: ", status, "\nrules:\n", rules), "test").value();
}

const std::string kNvfp4Experts = "  - match: 're:.*experts.*'\n    weights: nvfp4\n";
const std::string kFp8Table = "  - match: 're:.*embed_tokens$'\n    weights: fp8-block\n";

TEST(EmbeddingTable, IsWrittenDeclaredAndRead) {
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts);
  const Recipe recipe = load_recipe("lab-fp8-embed").value();
  ASSERT_TRUE(run(folder / "in", folder / "out", {.recipe = recipe}).ok());
  const Opened source(folder / "in"), made(folder / "out");
  const LinearSource& table = made.weights.embedding();
  EXPECT_EQ(table.scheme, (QuantScheme{WeightFormat::fp8_block, ActivationFormat::high}));
  const double error = test::relative_error(test::decoded(source, source.weights.embedding()),
                                            test::decoded(made, table));
  EXPECT_GT(error, 0.01);
  EXPECT_LT(error, 0.04) << "E4M3 has 3 bits of mantissa: 2^-5 at most, and less on average";

  const auto verified = verify_checkpoint(folder / "out");
  ASSERT_TRUE(verified.ok());
  EXPECT_TRUE(verified.value().sound());
  const auto compared = compare_checkpoints(made.checkpoint, source.checkpoint, {}).value();
  EXPECT_TRUE(compared.changed.empty());
  EXPECT_NEAR(std::ranges::find(compared.linears, kTable, &ComparedLinear::module)->relative_error,
              error, 1e-9);
  const std::string card = test::file_text(folder / "out" / "README.md");
  EXPECT_NE(card.find("do not read an FP8 embedding table"), std::string::npos) << card;
  EXPECT_EQ(card.find("vllm serve"), std::string::npos) << card;
}

TEST(EmbeddingTable, TheRestIsTheRecipeItBuildsOn) {
  const Folder folder;
  test::write_model(folder / "in", Layout::separate_experts);
  for (const char* name : {"lab-fp8-embed", "w4a4-fp8-head"})
    ASSERT_TRUE(run(folder / "in", folder / name, {.recipe = load_recipe(name).value()}).ok());
  const Opened with(folder / "lab-fp8-embed"), without(folder / "w4a4-fp8-head");
  EXPECT_EQ(with.checkpoint.entries().size(), without.checkpoint.entries().size() + 1);
  for (const TensorEntry& entry : without.checkpoint.entries()) {
    if (entry.name == concat(kTable, ".weight")) continue;
    Tensor a = without.checkpoint.read(entry).value();
    Tensor b = with.checkpoint.read(*with.checkpoint.find(entry.name)).value();
    EXPECT_TRUE(std::ranges::equal(a.span(), b.span())) << entry.name;
  }
}

TEST(EmbeddingTable, AloneItIsNoLinear) {
  const Folder folder;
  test::write_model(folder / "in", Layout::dense);
  ASSERT_TRUE(run(folder / "in", folder / "out", {.recipe = lab(kFp8Table)}).ok());
  const Opened made(folder / "out");
  EXPECT_EQ(made.weights.embedding().scheme.weights, WeightFormat::fp8_block);
  const Json& groups = *made.checkpoint.config().find("quantization_config")->find("config_groups");
  EXPECT_EQ(groups.find("group_0")->find("targets")->dump(),
            R"(["re:(?:model\\.|language_model\\.)*embed_tokens$"])")
      << "other readers take \"Linear\" for the class of a layer";
  EXPECT_TRUE(groups.find("group_0")->find("input_activations")->is_null());
  EXPECT_EQ(made.weights.head().scheme.weights, WeightFormat::plain);
  EXPECT_TRUE(verify_checkpoint(folder / "out").value().sound());
}

TEST(EmbeddingTable, BroadRulesDoNotTakeIt) {
  const Folder folder;
  test::write_model(folder / "in", Layout::dense);
  const Recipe broad = lab("  - match: 're:.*'\n    weights: fp8-block\n");
  ASSERT_TRUE(run(folder / "in", folder / "out", {.recipe = broad}).ok());
  EXPECT_EQ(Opened(folder / "out").weights.embedding().scheme.weights, WeightFormat::plain);
}

TEST(EmbeddingTable, WhatItCannotBeIsRefused) {
  const Folder folder;
  test::write_model(folder / "in", Layout::fused_experts);
  const auto refused = [&](const Recipe& recipe, Dialect dialect) {
    const auto done = run(folder / "in", folder / "no", {.recipe = recipe, .dialect = dialect});
    return done.ok() ? std::string("it is done") : done.error().message;
  };
  const std::string four = "  - match: 're:.*embed_tokens$'\n    weights: nvfp4\n";
  EXPECT_NE(refused(lab(four), Dialect::compressed_tensors).find("expected \"weights: fp8-block\""),
            std::string::npos);
  EXPECT_NE(refused(lab(kNvfp4Experts + kFp8Table, "production"), Dialect::compressed_tensors)
                .find("expected \"status: lab\""),
            std::string::npos);
  EXPECT_NE(refused(lab(kFp8Table), Dialect::modelopt).find("that modelopt can say"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder / "no"));
}

}  // namespace
}  // namespace nibble
