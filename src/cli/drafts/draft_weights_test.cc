// --draft-quantization and --speculative-token-map: their words, the tokens they mean, and that
// plans have what is loaded, to the byte.
#include "cli/drafts/draft_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "cli/plan/plan_machine.h"
#include "cli/serving/model_loader.h"
#include "model/weights/synthetic_weights.h"
#include "testing/golden.h"
#include "testing/source_dir.h"
#include "testing/test_files.h"

namespace nibble {
namespace {

Result<Arguments> flags(std::vector<std::string> words) {
  words.insert(words.begin(), "model");
  return parse_arguments(kPlanVerb, words,
                         [](const std::string&) { return std::optional<std::string>(); });
}

TEST(DraftWeights, WordsAreReadOrRefused) {
  const auto format = [](const char* word) {
    return read_draft_weights(flags({"--draft-quantization", word}).value()).value().format;
  };
  EXPECT_EQ(format("none"), WeightFormat::plain);
  EXPECT_EQ(format("fp8"), WeightFormat::fp8_tensor);
  EXPECT_EQ(format("nvfp4"), WeightFormat::nvfp4);
  EXPECT_EQ(format("auto"), std::nullopt);
  const DraftWeights unsaid = read_draft_weights(flags({}).value()).value();
  EXPECT_FALSE(unsaid.tokens);
  EXPECT_TRUE(unsaid.given.empty());
  for (const auto& [words, said] :
       {std::pair<std::vector<std::string>, const char*>{{"--draft-quantization", "int4"}, "nvfp4"},
        {{"--draft-quantization", "NVFP4"}, "--draft-quantization"},
        {{"--speculative-token-map", "0"}, "--speculative-token-map"},
        {{"--speculative-token-map", "1.5"}, "--speculative-token-map"},
        {{"--speculative-token-map", "/nowhere/map"}, "/nowhere/map"}}) {
    const auto refused = flags(words);
    ASSERT_FALSE(refused.ok()) << words[1];
    EXPECT_NE(refused.error().message.find(said), std::string::npos) << refused.error().message;
    EXPECT_EQ(std::ranges::count(refused.error().message, '\n'), 0) << refused.error().message;
  }
}

/// A CPU holds as much of Pebble, and of random weights of its shape, as the plan counts, which
/// loads nothing.
TEST(DraftWeights, ThePlanHasWhatIsLoaded) {
  const std::string pebble = std::string(NIBBLE_SOURCE_DIR) + "/pebble/model";
  TemporaryFolder folder;
  const std::string list = folder / "tokens.txt";
  std::ofstream(list) << "1 2 3 500 1984";
  std::set<int64_t> sizes;
  for (const char* load : {"auto", "dummy:mixed"})
    for (const char* format : {"none", "fp8", "nvfp4"})
      for (const std::string& map : {std::string(), std::string("300"), list}) {
        SCOPED_TRACE(concat(load, " ", format, " ", map));
        std::vector<std::string> words = {"--speculative-config", R"({"method":"mtp"})",
                                          "--load-format",        load,
                                          "--draft-quantization", format,
                                          "--no-vision"};
        if (!map.empty()) words.insert(words.end(), {"--speculative-token-map", map});
        const Arguments arguments = flags(words).value();
        Terminal terminal;
        const PlanModel planned = read_plan_model(arguments, pebble, {}, terminal).value();
        ModelRequest request = model_request(arguments, pebble).value();
        request.backend = "cpu";
        request.options.threads = 1;
        request.draft_layer = DraftLayer::wanted;
        request.draft_weights = read_draft_weights(arguments).value();
        const LoadedModel loaded = load_model(request).value();
        EXPECT_TRUE(loaded.backend->drafts()) << loaded.notice;
        EXPECT_EQ(loaded.weight_bytes, total_bytes(planned.served.on_cpu));
        EXPECT_EQ(loaded.host_weights.mapped, total_bytes(planned.served.mapped_on_cpu));
        EXPECT_EQ(loaded.config.draft_tokens, planned.served.config.draft_tokens);
        sizes.insert(loaded.weight_bytes);
      }
  EXPECT_EQ(sizes.size(), 18U);  // the options are heeded
}

/// A plan without the layer gets back what the layer takes as it is loaded, not as it is stored; a
/// CPU pads small matrices a little.
TEST(DraftWeights, ItsBytesAreThoseThatItTakes) {
  ModelRequest request{.folder = std::string(NIBBLE_SOURCE_DIR) + "/pebble/model",
                       .backend = "cpu",
                       .options = {.threads = 1}};
  const LoadedModel without = load_model(request).value();
  EXPECT_EQ(without.draft_bytes, 0);
  request.draft_layer = DraftLayer::wanted;
  for (const WeightFormat format :
       {WeightFormat::plain, WeightFormat::fp8_tensor, WeightFormat::nvfp4})
    for (const int64_t map : {0, 300}) {
      request.draft_weights = {.format = format};
      if (map > 0) request.draft_weights.tokens = TokenMap{.count = map};
      const LoadedModel with = load_model(request).value();
      const auto taken = static_cast<double>(with.weight_bytes - without.weight_bytes);
      EXPECT_NEAR(static_cast<double>(with.draft_bytes), taken, 0.06 * taken)
          << static_cast<int>(format) << " " << map;
    }
}

TEST(DraftWeights, TheLineOfAStartSaysHowItIsLoaded) {
  ModelConfig config;
  config.vocab_rows = 2048;
  config.draft_format = WeightFormat::nvfp4;
  EXPECT_EQ(draft_weights_words(config), "");
  config.draft_layers = 1;
  EXPECT_EQ(draft_weights_words(config), ", plain weights rounded to NVFP4");
  config.draft_tokens = {1, 2, 3};
  EXPECT_EQ(draft_weights_words(config),
            ", plain weights rounded to NVFP4, chosen among 3 of 2048");
  config.draft_format = WeightFormat::plain;
  EXPECT_EQ(draft_weights_words(config), ", chosen among 3 of 2048");
}

/// Nothing is rounded of a layer that is stored in fewer bits, so nobody may say so.
TEST(DraftWeights, ALayerThatIsStoredInFewerBitsIsNotRounded) {
  ModelConfig config = load_pebble_that_drafts({}).config;
  const auto chosen = [&](WeightFormat layer, WeightFormat head, int64_t map) {
    SyntheticWeights places = synthetic_weights(config, [&](std::string_view module) {
      const bool gate = module.ends_with(".gate") || module.ends_with("expert_gate");
      return module == "lm_head" ? head : gate ? WeightFormat::plain : layer;
    });
    DraftWeights wanted{.format = std::nullopt};
    if (map > 0) wanted.tokens = TokenMap{.count = map};
    ModelConfig served = config;
    choose_draft_weights(wanted, *places.mtp, places.head, served).value();
    return served.draft_format;
  };
  constexpr auto kFp8 = WeightFormat::fp8_tensor, kPlain = WeightFormat::plain;
  EXPECT_EQ(chosen(kFp8, kFp8, 0), kPlain);
  EXPECT_EQ(chosen(kFp8, kFp8, 300), kPlain);               // rows of FP8 as they are
  EXPECT_EQ(chosen(kFp8, kPlain, 0), WeightFormat::nvfp4);  // a copy of the head
  EXPECT_EQ(chosen(kPlain, kFp8, 0), WeightFormat::nvfp4);
}

/// A server without the layer says that options of it do nothing.
TEST(DraftWeights, OptionsInVainAreNamed) {
  ModelRequest request{.folder = std::string(NIBBLE_SOURCE_DIR) + "/pebble/model",
                       .backend = "cpu",
                       .options = {.threads = 1}};
  EXPECT_EQ(load_model(request).value().notice.find("no effect"), std::string::npos);
  request.draft_weights =
      read_draft_weights(flags({"--speculative-token-map", "300"}).value()).value();
  for (const auto& dummy : {std::optional<std::string>(), std::optional<std::string>("mixed")}) {
    request.dummy = dummy;
    EXPECT_NE(load_model(request).value().notice.find(
                  "--speculative-token-map has no effect: no MTP layer is loaded\n"),
              std::string::npos);
  }
  request.dummy = std::nullopt;
  request.draft_layer = DraftLayer::wanted;
  EXPECT_EQ(load_model(request).value().notice.find("no effect"), std::string::npos);
  EXPECT_EQ(options_in_vain({.given = {"--a", "--b"}}),
            "--a and --b have no effect: no MTP layer is loaded\n");
}

/// The layer beside a plan that does not load it, in the formats of a recipe.
TEST(DraftWeights, ThePlanOfARecipeHasTheLayerInItsFormats) {
  TemporaryFolder folder;
  const std::string recipe = folder / "mtp.yaml";
  std::ofstream(recipe)
      << "name: mtp\nstatus: production\nrules:\n  - match: "
         "'re:.*\\.mlp\\.(experts\\.\\d+\\.|shared_expert\\.)?(gate|up|down)_proj$'\n"
         "    weights: nvfp4\n"
         "  - match: 're:mtp\\..*\\.mlp\\..*_proj$'\n    weights: nvfp4\n";
  const auto bytes = [&](const std::string& model, std::vector<std::string> words) {
    Terminal terminal;
    words.push_back("--no-speculation");
    return read_plan_model(flags(words).value(), model, {}, terminal).value().others.mtp_bytes;
  };
  const std::string pebble = std::string(NIBBLE_SOURCE_DIR) + "/pebble/model";
  const std::string shapes = pebble + "/config.json";
  EXPECT_EQ(bytes(shapes, {}), bytes(pebble, {}));
  EXPECT_EQ(bytes(shapes, {"--recipe", recipe}), bytes(pebble, {"--recipe", recipe}));
  EXPECT_LT(bytes(shapes, {"--recipe", recipe}), bytes(shapes, {}) * 3 / 4);
}

TEST(DraftWeights, AMapThatIsWrongEndsTheStart) {
  ModelRequest request{.folder = std::string(NIBBLE_SOURCE_DIR) + "/pebble/model",
                       .backend = "cpu",
                       .options = {.threads = 1},
                       .draft_layer = DraftLayer::wanted};
  for (const auto& [map, said] :
       {std::pair<TokenMap, const char*>{{.count = 64}, "64 special tokens"},
        {{.count = 4096}, "2048"},
        {{.text = "1 2 9999", .source = "the map"}, "the map"}}) {
    request.draft_weights.tokens = map;
    const auto refused = load_model(request);
    ASSERT_FALSE(refused.ok()) << map.count;
    EXPECT_NE(refused.error().message.find(said), std::string::npos) << refused.error().message;
  }
}

}  // namespace
}  // namespace nibble
