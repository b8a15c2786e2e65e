// A checkpoint's folder makes a served model, or is refused for what is wrong in it.
#include "server/served_model.h"

#include <gtest/gtest.h>

#include <bit>
#include <fstream>

#include "server/testing/test_model.h"
#include "testing/test_files.h"

namespace nibble {
namespace {

class ServedModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    write("tokenizer.json", testing::tokenizer_json());
    config_.stop_ids = {testing::kImEnd, 7};
    config_.vocab_rows = testing::kVocabRows;
  }
  void write(const char* name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  Result<ServedModel> load() const { return load_served_model(folder_.path(), config_); }
  /// With this generation_config.json.
  ServedModel with(const std::string& json) const {
    write("generation_config.json", json);
    auto model = load();
    if (!model.ok()) ADD_FAILURE() << json << ": " << model.error().message;
    return model.ok() ? std::move(model).value() : testing::served_model();
  }
  std::string refusal(const std::string& json) const {
    write("generation_config.json", json);
    const auto model = load();
    return model.ok() ? "" : model.error().message;
  }

  TemporaryFolder folder_;
  ModelConfig config_;
};

TEST_F(ServedModelTest, ATokenizerIsEnough) {
  const auto loaded = load();
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const ServedModel& model = loaded.value();
  EXPECT_FALSE(model.chat_template);
  EXPECT_EQ(model.vocab_rows, testing::kVocabRows);
  EXPECT_EQ(model.stop_ids, (std::vector<int32_t>{7, testing::kImEnd}));  // ascending
  EXPECT_EQ(model.sampling.temperature, SamplingParams().temperature);
  EXPECT_EQ(model.max_tokens_default, std::nullopt);
  EXPECT_EQ(model.token_bytes_max, std::string_view("<|vision_start|>").size());
  EXPECT_EQ(model.tags.think_begin, testing::kThink);
  EXPECT_EQ(model.tags.think_end, testing::kEndThink);
  EXPECT_EQ(model.tags.tool_begin, testing::kToolCall);
  EXPECT_EQ(model.tags.tool_end, testing::kEndToolCall);
  EXPECT_EQ(model.thinking_close, (std::vector<int32_t>{'\n', testing::kEndThink}));
}

TEST_F(ServedModelTest, TagsAreAddedTokensOnly) {
  std::string plain = testing::tokenizer_json();
  for (const char* tag : {"<think>", "</think>", "<tool_call>"})
    plain.replace(plain.find(concat("\"", tag, "\"")) + 1, std::string_view(tag).size(),
                  concat("<other", tag + 1));
  write("tokenizer.json", plain);
  const auto model = load();
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model.value().tags.think_begin, std::nullopt);
  EXPECT_EQ(model.value().tags.think_end, std::nullopt);
  EXPECT_EQ(model.value().tags.tool_begin, std::nullopt);
  EXPECT_EQ(model.value().tags.tool_end, testing::kEndToolCall);
  EXPECT_TRUE(model.value().thinking_close.empty());
}

TEST_F(ServedModelTest, TheTemplateIsTakenAndABrokenOneRefused) {
  write("chat_template.jinja", std::string(testing::kTemplate));
  auto model = load();
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_TRUE(model.value().chat_template);
  write("chat_template.jinja", "{% if %}");
  EXPECT_FALSE(load().ok());
}

TEST_F(ServedModelTest, StopsAreThoseOfAllFilesOnce) {
  write("tokenizer_config.json", R"({"eos_token":"<|im_start|>"})");
  EXPECT_EQ(with(R"({"eos_token_id":[257,9,9]})").stop_ids,
            (std::vector<int32_t>{7, 9, testing::kImStart, testing::kImEnd}));
  EXPECT_EQ(with(R"({"eos_token_id":0})").stop_ids,
            (std::vector<int32_t>{0, 7, testing::kImStart, testing::kImEnd}));
  EXPECT_EQ(with(R"({"eos_token_id":2147483647})").stop_ids.back(), INT32_MAX);
  EXPECT_EQ(with(R"({"eos_token_id":null})").stop_ids.size(), 3U);
  for (const char* bad : {"-1", "\"x\"", "[1,1.5]", "[true]", "2147483648"}) {
    const std::string message = refusal(concat(R"({"eos_token_id":)", bad, "}"));
    EXPECT_NE(message.find("generation_config.json: eos_token_id: expected a token id or a list"),
              std::string::npos)
        << bad << ": " << message;
  }
}

TEST_F(ServedModelTest, DefaultsOfSamplingComeFromGenerationConfig) {
  const ServedModel model =
      with(R"({"temperature":0.6,"top_p":0.95,"min_p":0.05,"presence_penalty":1.5,)"
           R"("frequency_penalty":-1.5,"repetition_penalty":1.1,"top_k":20,"max_new_tokens":300})");
  EXPECT_EQ(model.sampling.temperature, 0.6);
  EXPECT_EQ(model.sampling.top_p, 0.95);
  EXPECT_EQ(model.sampling.min_p, 0.05);
  EXPECT_EQ(model.sampling.presence_penalty, 1.5);
  EXPECT_EQ(model.sampling.frequency_penalty, -1.5);
  EXPECT_EQ(model.sampling.repetition_penalty, 1.1);
  EXPECT_EQ(model.sampling.top_k, 20);
  EXPECT_EQ(model.max_tokens_default, 300);
  const ServedModel none = with(R"({"temperature":null,"top_k":-1})");
  EXPECT_EQ(none.sampling.temperature, SamplingParams().temperature);
  EXPECT_EQ(none.sampling.top_k, 0);
  EXPECT_EQ(none.max_tokens_default, std::nullopt);
  EXPECT_EQ(with(R"({"max_new_tokens":1})").max_tokens_default, 1);
}

TEST_F(ServedModelTest, NumbersOutsideTheirRangeAreRefused) {
  struct Range {
    const char *name, *least, *most, *below, *above;
  };
  for (const Range& range : {Range{"temperature", "0", "100", "-0.1", "100.1"},
                             {"top_p", "0", "1", "-0.1", "1.1"},
                             {"min_p", "0", "1", "-0.1", "1.1"},
                             {"presence_penalty", "-2", "2", "-2.1", "2.1"},
                             {"frequency_penalty", "-2", "2", "-2.1", "2.1"},
                             {"repetition_penalty", "0.01", "10", "0", "10.1"},
                             {"top_k", "-1", "1000000000", "-2", "1000000001"},
                             {"max_new_tokens", "1", "1000000000", "0", "1000000001"}}) {
    const auto says = [&](const char* value) {
      return refusal(concat("{\"", range.name, "\":", value, "}"));
    };
    EXPECT_EQ(says(range.least), "");
    EXPECT_EQ(says(range.most), "");
    for (const char* bad : {range.below, range.above, "\"1\""})
      EXPECT_NE(says(bad).find(concat("generation_config.json: ", range.name,
                                      ": expected a number from ", range.least)),
                std::string::npos)
          << says(bad);
  }
  EXPECT_NE(refusal("{"), "");
  std::filesystem::remove(folder_ / "generation_config.json");
  std::filesystem::create_directory(folder_ / "generation_config.json");
  EXPECT_FALSE(load().ok());  // what cannot be read is not taken for absent
}

/// Grammars see the text of words, never that of tags; padding has no text and is never sampled.
TEST_F(ServedModelTest, WordsOfGrammarsAndOfSampling) {
  const auto loaded = load();
  ASSERT_TRUE(loaded.ok());
  const ServedModel& model = loaded.value();
  const auto vocabulary = model.grammar_vocabulary();
  ASSERT_EQ(vocabulary.tokens.size(), static_cast<size_t>(testing::kVocabRows));
  for (int32_t id = 0; id < testing::kVocabRows; ++id)
    EXPECT_EQ(vocabulary.tokens[static_cast<size_t>(id)],
              id < 256 ? std::string(1, static_cast<char>(id)) : "")
        << id;
  EXPECT_EQ(vocabulary.stop_ids, model.stop_ids);
  EXPECT_EQ(vocabulary.tags, (std::vector<int32_t>{testing::kToolCall, testing::kEndToolCall}));
  EXPECT_EQ(vocabulary.encode("ab"), (std::vector<int32_t>{'a', 'b'}));
  EXPECT_EQ(vocabulary.encode("<think>").size(), 7U);  // plain text
  const std::vector<uint32_t> bits = model.sampleable();
  ASSERT_EQ(bits.size(), 10U);
  int known = 0;
  for (const uint32_t word : bits) known += std::popcount(word);
  EXPECT_EQ(known, 266);
  EXPECT_EQ(bits[8], (1U << (testing::kVideoPad + 1 - 256)) - 1);
  EXPECT_EQ(bits[9], 0U);
}

}  // namespace
}  // namespace nibble
