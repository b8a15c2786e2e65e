// From a plan and losses to groups, bytes, a recipe and a checkpoint.
#include "quantize/allocate/allocate.h"

#include <gtest/gtest.h>

#include <atomic>

#include "quantize/testing/test_runs.h"
#include "quantize/verify/verify.h"

namespace nibble {
namespace {

using test::Folder;
using test::Layout;

/// Candidates of a recipe on the small checkpoint, and losses that are made up.
class Allocate : public testing::Test {
 protected:
  Allocate() { test::write_model(folder_ / "in", Layout::fused_experts); }

  AllocationCandidates candidates(const std::string& recipe, Dialect dialect) {
    recipe_ = load_recipe(recipe).value();
    checkpoint_.emplace(Checkpoint::open(folder_ / "in").value());
    plan_ = plan_quantization(*checkpoint_, recipe_, dialect).value();
    return AllocationCandidates::find(plan_, recipe_).value();
  }

  FormatLosses losses() const {
    FormatLosses out;
    double loss = 1;
    for (const FusedGroup& group : plan_.rounded)
      for (const PlannedLinear& linear : group.linears) {
        out[linear.source.module] = {.nvfp4 = loss, .fp8 = loss / 50};
        loss = loss < 3 ? loss * 1.1 : 1;
      }
    return out;
  }

  static AllocationTarget bytes(int64_t count) {
    return {.bytes = count, .kl = {}, .text = concat("--target-bytes ", count)};
  }

  static std::string refusal(const Result<Allocation>& result) {
    return result.ok() ? "none" : result.error().message;
  }

  Folder folder_;
  Recipe recipe_;
  std::optional<Checkpoint> checkpoint_;
  QuantPlan plan_;
};

TEST_F(Allocate, LinearsThatEnginesFuseAreOneGroup) {
  const Allocation made = candidates("mixed", Dialect::compressed_tensors)
                              .choose(losses(), {.kl = 1e9, .text = "t"})
                              .value();
  std::vector<std::string> names;
  for (const AllocationGroup& group : made.groups) names.push_back(group.name);
  const std::string at = "model.language_model.layers.";
  EXPECT_EQ(
      names,
      (std::vector<std::string>{
          "lm_head", at + "0.linear_attn.in_proj_qkv,in_proj_z", at + "0.linear_attn.out_proj",
          at + "0.mlp.experts", at + "0.mlp.shared_expert.down_proj",
          at + "0.mlp.shared_expert.gate_proj,up_proj", at + "1.mlp.experts",
          at + "1.mlp.shared_expert.down_proj", at + "1.mlp.shared_expert.gate_proj,up_proj",
          at + "1.self_attn.o_proj", at + "1.self_attn.q_proj,k_proj,v_proj"}));
}

TEST_F(Allocate, BytesAreThoseOfThePlanOfItsRecipe) {
  for (const Dialect dialect : {Dialect::compressed_tensors, Dialect::modelopt}) {
    const AllocationCandidates found = candidates("mixed", dialect);
    const int64_t least = found.bytes_least(), most = found.bytes_most();
    for (int part = 0; part < 8; ++part) {
      const Allocation made =
          found.choose(losses(), bytes(least + (most - least) * part / 8)).value();
      const Recipe recipe = found.recipe(made).value();
      const QuantPlan plan = plan_quantization(*checkpoint_, recipe, dialect).value();
      EXPECT_EQ(plan.bytes_out, made.total.bytes) << part;
      EXPECT_LE(made.total.bytes, least + (most - least) * part / 8);
    }
    EXPECT_EQ(found.choose(losses(), bytes(least)).value().total.bytes, least);
    EXPECT_EQ(most, plan_.bytes_in);
  }
}

TEST_F(Allocate, ItsRecipeWeighsTokensAsTheOneItIsOf) {
  const AllocationCandidates found = candidates("mixed", Dialect::compressed_tensors);
  const int64_t middle = (found.bytes_least() + found.bytes_most()) / 2;
  const Allocation made = found.choose(losses(), bytes(middle)).value();
  for (const SecondMoments moments : {SecondMoments::plain, SecondMoments::fisher}) {
    recipe_.second_moments = moments;
    EXPECT_EQ(found.recipe(made).value().second_moments, moments);
  }
}

TEST_F(Allocate, ASizeOutOfReachIsRefusedWithBothBounds) {
  const AllocationCandidates found = candidates("mixed", Dialect::compressed_tensors);
  const std::string least = concat(found.bytes_least(), " bytes"),
                    most = concat(found.bytes_most(), " bytes");
  for (const int64_t target : {found.bytes_least() - 1, found.bytes_most(), int64_t{0}}) {
    const std::string said = refusal(found.choose({}, bytes(target)));
    EXPECT_NE(said.find("--target-bytes"), std::string::npos) << said;
    EXPECT_NE(said.find(least), std::string::npos) << said;
    EXPECT_NE(said.find(most), std::string::npos) << said;
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
  }
  const std::string said = refusal(found.choose(losses(), {.kl = 1e-9, .text = "t"}));
  EXPECT_NE(said.find("--target-kl"), std::string::npos) << said;
}

TEST_F(Allocate, ARecipeWithOtherFormatsIsRefused) {
  const auto found = [&](const char* name) {
    const Recipe recipe = load_recipe(name).value();
    const QuantPlan plan =
        plan_quantization(*checkpoint_, recipe, Dialect::compressed_tensors).value();
    const auto result = AllocationCandidates::find(plan, recipe);
    return result.ok() ? std::string("none") : result.error().message;
  };
  checkpoint_.emplace(Checkpoint::open(folder_ / "in").value());
  EXPECT_EQ(found("w4a16"), "none");
  EXPECT_EQ(found("fp8"), "none");
  EXPECT_NE(found("w4a4").find("4-bit activations"), std::string::npos) << found("w4a4");
}

TEST_F(Allocate, ExpertsHaveOneFormatAndTheHeadAScalePerRow) {
  const AllocationCandidates found = candidates("mixed", Dialect::compressed_tensors);
  FormatLosses all = losses();
  Allocation made = found.choose(all, {.kl = 1e9, .text = "t"}).value();
  for (AllocationGroup& group : made.groups) group.chosen = 1;
  const QuantPlan plan =
      plan_quantization(*checkpoint_, found.recipe(made).value(), Dialect::compressed_tensors)
          .value();
  for (const FusedGroup& group : plan.rounded)
    for (const PlannedLinear& linear : group.linears) {
      const bool by_row = is_routed_expert(linear.source.module) || linear.kind == "lm_head";
      EXPECT_EQ(linear.becomes.scheme.weights,
                by_row ? WeightFormat::fp8_channel : WeightFormat::fp8_tensor)
          << linear.source.module;
    }
}

TEST_F(Allocate, ALinearWhoseColumnsAreNotInSixteensHasNoFourBits) {
  candidates("mixed", Dialect::compressed_tensors);
  for (FusedGroup& group : plan_.rounded)
    for (PlannedLinear& linear : group.linears)
      if (linear.kind == "lm_head") linear.source.cols += 8;
  const AllocationCandidates found = AllocationCandidates::find(plan_, recipe_).value();
  const Allocation made = found.choose(losses(), bytes(found.bytes_least())).value();
  for (const AllocationGroup& group : made.groups) {
    const AllocatedFormat least = group.choices.at(0).format;
    EXPECT_EQ(least, group.name == "lm_head" ? AllocatedFormat::fp8 : AllocatedFormat::nvfp4)
        << group.name;
  }
}

TEST_F(Allocate, WhatIsNoCandidateKeepsWhatTheRecipeSays) {
  recipe_ =
      parse_recipe(
          concat("name: test\nstatus: lab\nrules:\n", "  - match: lm_head\n    weights: nvfp4\n",
                 "  - match: model.language_model.embed_tokens\n", "    weights: fp8-block\n"),
          "test")
          .value();
  checkpoint_.emplace(Checkpoint::open(folder_ / "in").value());
  plan_ = plan_quantization(*checkpoint_, recipe_, Dialect::compressed_tensors).value();
  const auto found = AllocationCandidates::find(plan_, recipe_).value();
  EXPECT_TRUE(found.contains("lm_head"));
  EXPECT_FALSE(found.contains("model.language_model.embed_tokens"));
  const Allocation made = found.choose(losses(), bytes(found.bytes_least())).value();
  const Recipe recipe = found.recipe(made).value();
  const QuantPlan again =
      plan_quantization(*checkpoint_, recipe, Dialect::compressed_tensors).value();
  EXPECT_EQ(again.bytes_out, plan_.bytes_out);
  ASSERT_EQ(again.rounded.size(), 2U);
}

/// Everything of a run with an allocation: stopped and continued to the same bytes, sound, with the
/// allocation in its report.
TEST_F(Allocate, ACheckpointIsSoundAndContinuesToTheSameBytes) {
  for (const Dialect dialect : {Dialect::compressed_tensors, Dialect::modelopt}) {
    const AllocationCandidates found = candidates("mixed", dialect);
    const Allocation made =
        found.choose(losses(), bytes((found.bytes_least() + found.bytes_most()) / 2)).value();
    const Recipe recipe = found.recipe(made).value();
    std::atomic<int> asks = 0;
    const auto run = [&](const std::string& name, int stop_after) {
      asks = 0;
      return test::run(folder_ / name, folder_ / concat(dialect_name(dialect), name),
                       {.recipe = recipe,
                        .dialect = dialect,
                        .options = {.threads = 2,
                                    .cancelled = [&, stop_after] { return ++asks > stop_after; },
                                    .allocation = &made,
                                    .journal_seconds = 0}});
    };
    ASSERT_FALSE(run("in", 20).ok());
    const auto continued = run("in", 1 << 30);
    ASSERT_TRUE(continued.ok()) << continued.error().message;
    EXPECT_EQ(continued.value().bytes_out, made.total.bytes);
    const auto output = folder_ / concat(dialect_name(dialect), "in");
    const auto files = test::files_of(output);
    std::filesystem::remove_all(output);
    ASSERT_TRUE(run("in", 1 << 30).ok());
    EXPECT_TRUE(test::files_of(output) == files);
    const VerifyReport report = verify_checkpoint(output, {}).value();
    EXPECT_TRUE(report.sound()) << report.findings.front().text;
    const Json written = parse_json(files.at("quantize_report.json"), "report").value();
    EXPECT_EQ(written.find("allocation")->dump(), made.json().dump());
    EXPECT_NE(files.at("allocation.svg").find("<polyline"), std::string::npos);
    EXPECT_EQ(parse_report(written).value().allocation.dump(), made.json().dump());
    EXPECT_NE(files.at("recipe.yaml").find("--recipe mixed --target-bytes"), std::string::npos);
  }
}

}  // namespace
}  // namespace nibble
