// The memory of images: what its flags may ask for, and that a plan without drafts has it too.
#include "cli/serving/engine_setup.h"

#include <gtest/gtest.h>

#include "cli/verb.h"
#include "engine/testing/fake_backend.h"
#include "testing/tiny_checkpoint.h"

namespace nibble {
namespace {

constexpr EngineNeeds kNeeds = {.use = EngineUse::serving, .tower = TowerUse::wanted};
constexpr int kColumns = 16;              // width of the text model: a row of media has 64 bytes
constexpr int64_t kMediaBytes = 1 << 20;  // beside the rows

/// All values are checked, and nothing is loaded.
Result<Arguments> parsed_flags(std::vector<std::string> words) {
  words.insert(words.begin(), "model");
  return parse_arguments(kServeVerb, words,
                         [](const std::string&) { return std::optional<std::string>(); });
}

Arguments serve_flags(const std::vector<std::string>& words) { return parsed_flags(words).value(); }

ModelConfig tiny_config(int draft_layers) {
  ModelConfig config = ModelConfig::parse(TinyCheckpoint::moe().config).value();
  config.draft_layers = draft_layers;
  return config;
}

/// A card with room for everything.
ModelOnMachine on_large_card(const ModelConfig& config) {
  constexpr int64_t kCardBytes = int64_t{8} << 30;
  return {.config = config,
          .weight_bytes = 1000,
          .page_bytes = int64_t{4096} * config.kv_layers(),
          .slot_bytes = 512,
          .replay_row_bytes = 64,
          .card = DeviceMemory{.card = kCardBytes, .free = kCardBytes},
          .workspace_bytes = [](const PoolSizes&) { return int64_t{4096}; },
          .recorded_bytes = [](const PoolSizes&) { return int64_t{0}; },
          .driver_growth = [] { return int64_t{0}; },
          .vision = VisionConfig{.hidden = 8, .heads = 1, .merge = 2, .out = kColumns},
          .media_bytes =
              [](const PoolSizes& sizes) {
                return kMediaBytes + int64_t{sizes.media_rows} * kColumns * int64_t{sizeof(float)};
              }};
}

TEST(EngineSetup, APlanWithoutDraftsPaysForImagesToo) {
  const Arguments flags = serve_flags({"--max-image-tokens", "64"});
  const ModelConfig with = tiny_config(1);
  const ModelConfig without = tiny_config(0);
  ModelOnMachine machine = on_large_card(with);
  machine.held_bytes = 900;
  constexpr int64_t kDraftBytes = 100;
  const ModelOnMachine left = without_draft_layer(machine, without, kDraftBytes);
  EXPECT_EQ(left.weight_bytes, machine.weight_bytes - kDraftBytes);
  EXPECT_EQ(left.held_bytes, machine.held_bytes - kDraftBytes);
  EXPECT_EQ(left.page_bytes, int64_t{4096} * without.kv_layers());
  const MemoryRequest asked = memory_request(flags, kNeeds, left).value();
  EXPECT_EQ(asked.image_tokens_max, 64);
  EXPECT_GT(asked.media_bytes, kMediaBytes);
  EXPECT_EQ(asked.media_bytes, memory_request(flags, kNeeds, machine).value().media_bytes);
  EXPECT_EQ(plan_on_machine(asked, left).value().media_bytes, asked.media_bytes);
}

/// Copied weights are missing in what the system says is free, and so are streamed ones in what
/// they will take of it; other mapped ones are not.
TEST(EngineSetup, WhatWeightsHoldIsPartOfTheMemory) {
  constexpr int64_t kHeld = int64_t{1} << 50;  // more than any machine has free
  LoadedModel model;
  model.config = tiny_config(0);
  model.backend = std::make_unique<FakeBackend>();
  const auto asked = [&](const HostWeights& weights) {
    model.host_weights = weights;
    const ModelOnMachine machine = loaded_model(model);
    return memory_request(serve_flags({}), {.use = EngineUse::serving}, machine).value();
  };
  EXPECT_LT(asked({}).memory_bytes, kHeld / 2);
  EXPECT_GT(asked({.copied = kHeld}).memory_bytes, kHeld / 2);
  const MemoryRequest mapped = asked({.mapped = kHeld});
  EXPECT_LT(mapped.memory_bytes, kHeld / 2);
  EXPECT_EQ(mapped.mapped_bytes, kHeld);
  EXPECT_GT(asked({.mapped = kHeld, .streamed = true}).memory_bytes, kHeld / 2);
}

TEST(EngineSetup, EncodedImagesHaveLeastAndMost) {
  const ModelConfig config = tiny_config(0);
  const ModelOnMachine machine = on_large_card(config);
  const auto asked = [&](const char* bytes) {
    return memory_request(
        serve_flags({"--max-image-tokens", "64", "--encoder-cache-memory-bytes", bytes}), kNeeds,
        machine);
  };
  EXPECT_EQ(asked("4096").value().media_rows, 64);
  EXPECT_EQ(asked("2147483584").value().media_rows, 33554431);
  struct Row {
    const char* bytes;
    const char* advice;
  };
  for (const Row& row : {Row{"4095", "raise it or lower --max-image-tokens"},
                         Row{"2147483648", "lower it"}, Row{"100T", "lower it"}}) {
    const auto refused = asked(row.bytes);
    ASSERT_FALSE(refused.ok()) << row.bytes;
    const std::string& message = refused.error().message;
    EXPECT_NE(message.find("from 4096 bytes, an image of 64 tokens, to 2147483584"),
              std::string::npos)
        << message;
    EXPECT_TRUE(message.ends_with(row.advice)) << message;
  }
}

TEST(EngineSetup, FlagsOfImagesAreCheckedBeforeAnythingIsLoaded) {
  const auto refused =
      parsed_flags({"--max-image-tokens", "3", "--encoder-cache-memory-bytes", "0"});
  ASSERT_FALSE(refused.ok());
  for (const char* flag : {"--max-image-tokens: ", "--encoder-cache-memory-bytes: "})
    EXPECT_NE(refused.error().message.find(flag), std::string::npos) << refused.error().message;
  EXPECT_TRUE(parsed_flags({"--max-image-tokens", "4"}).ok());
}

}  // namespace
}  // namespace nibble
