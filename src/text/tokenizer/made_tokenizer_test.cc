// The files of the made tokenizer give every byte, and Qwen's special tokens at the config's ids.
#include "text/tokenizer/made_tokenizer.h"

#include <gtest/gtest.h>

#include "text/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace nibble {
namespace {

Json config_of(std::string_view text) { return parse_json(text, "test").value(); }

constexpr std::string_view kConfig =
    R"({"image_token_id": 412, "vision_start_token_id": 409, "vision_config": {"patch_size": 14},)"
    R"( "text_config": {"vocab_size": 512, "max_position_embeddings": 4096}})";

TEST(MadeTokenizer, ReadsEveryByteAndHasTheSpecialTokensOfTheConfig) {
  const auto files = made_tokenizer(config_of(kConfig)).value();
  ASSERT_EQ(files.size(), 6U);
  const Tokenizer tokenizer = Tokenizer::parse(files[0].text, files[1].text, "made").value();
  EXPECT_EQ(tokenizer.token_to_id("<|vision_start|>"), 409);
  EXPECT_EQ(tokenizer.token_to_id("<|image_pad|>"), 412);
  EXPECT_EQ(tokenizer.token_to_id("<|endoftext|>"), 400);
  EXPECT_TRUE(tokenizer.is_special(402));
  EXPECT_FALSE(tokenizer.is_special(*tokenizer.token_to_id("</think>")));
  EXPECT_EQ(tokenizer.vocab_size(), 433);
  std::string all;
  for (int byte = 1; byte < 128; ++byte) all += static_cast<char>(byte);
  all += "é Ω 你 🙂";
  const auto ids = tokenizer.encode(all, SpecialTokens::plain_text).value();
  EXPECT_EQ(ids.size(), all.size());
  EXPECT_EQ(tokenizer.decode(ids, SkipSpecial::no), all);
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{300, 301}, SkipSpecial::no), "w300w301");
}

TEST(MadeTokenizer, TheTemplateCompilesAndTheProcessorsHaveTheConfigsSizes) {
  const auto files = made_tokenizer(config_of(kConfig)).value();
  EXPECT_TRUE(ChatTemplate::compile(files[2].text, "made").ok());
  EXPECT_NE(files[4].text.find("\"patch_size\": 14"), std::string::npos) << files[4].text;
}

TEST(MadeTokenizer, RefusesVocabulariesWithoutRoom) {
  for (const char* text :
       {R"({"vocab_size": 288})", R"({"text_config": {"vocab_size": 1000}})",
        R"({"vocab_size": 512, "bos_token_id": 100})",
        R"({"vocab_size": 512, "bos_token_id": 500})", R"({"vocab_size": "many"})",
        R"({"vocab_size": 512, "vision_start_token_id": 3})", R"({"vocab_size": 99999999})"}) {
    const auto made = made_tokenizer(config_of(text));
    const bool room = std::string_view(text).find("1000") != std::string_view::npos;
    EXPECT_EQ(made.ok(), room) << text;
    if (!made.ok()) {
      EXPECT_EQ(made.error().message.find('\n'), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace nibble
