// --draft-quantization and --speculative-token-map: their words, the tokens they mean, and that
// plans have what is loaded, to the byte.
#include "cli/drafts/draft_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "cli/plan/plan_machine.h"
#include "cli/serving/model_loader.h"
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
  EXPECT_EQ(read_draft_weights(flags({}).value()).value().token_map, "");
  for (const auto& [words, said] :
       {std::pair<std::vector<std::string>, const char*>{{"--draft-quantization", "int4"}, "nvfp4"},
        {{"--draft-quantization", "NVFP4"}, "--draft-quantization"},
        {{"--speculative-token-map", "0"}, "--speculative-token-map"},
        {{"--speculative-token-map", "1.5"}, "--speculative-token-map"}}) {
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
    for (const char* map : {"", "300"}) {
      request.draft_weights = {.format = format, .token_map = map};
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
  EXPECT_EQ(draft_weights_words(config), " in NVFP4");
  config.draft_tokens = {1, 2, 3};
  EXPECT_EQ(draft_weights_words(config), " in NVFP4, chosen among 3 of 2048");
  config.draft_format = WeightFormat::plain;
  EXPECT_EQ(draft_weights_words(config), ", chosen among 3 of 2048");
}

TEST(DraftWeights, AMapThatIsWrongEndsTheStart) {
  ModelRequest request{.folder = std::string(NIBBLE_SOURCE_DIR) + "/pebble/model",
                       .backend = "cpu",
                       .options = {.threads = 1},
                       .draft_layer = DraftLayer::wanted};
  for (const auto& [word, said] : {std::pair<const char*, const char*>{"64", "64 special tokens"},
                                   {"4096", "2048"},
                                   {"/nowhere/map", "/nowhere/map"}}) {
    request.draft_weights.token_map = word;
    const auto refused = load_model(request);
    ASSERT_FALSE(refused.ok()) << word;
    EXPECT_NE(refused.error().message.find(said), std::string::npos) << refused.error().message;
  }
}

}  // namespace
}  // namespace nibble
