// Streams of both APIs, in pieces, with errors, and with what no server should send.
#include "bench/answer_reader.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

TEST(AnswerReader, CountsEventsThatCarryTokensAndTheUsage) {
  AnswerReader reader(LoadApi::chat);
  const auto say = [&](const char* json, double now) {
    const auto fed = reader.feed(concat("data: ", json, "\n\n"), now);
    EXPECT_TRUE(fed.ok()) << fed.error().message;
  };
  say(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})", 1);
  say(R"({"choices":[{"delta":{"reasoning_content":"r"}}]})", 2);
  say(R"({"choices":[{"delta":{"content":"a"}}]})", 3);
  say(R"({"choices":[{"delta":{"tool_calls":[{"index":0}]}}]})", 4);
  say(R"({"choices":[{"delta":{},"finish_reason":"length"}]})", 5);
  const std::string usage = R"({"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":8,)"
                            R"("prompt_tokens_details":{"cached_tokens":4}}})";
  say(usage.c_str(), 6);
  EXPECT_FALSE(reader.done());
  ASSERT_TRUE(reader.feed("data: [DONE]\n\n", 7).ok());
  EXPECT_TRUE(reader.done());
  EXPECT_EQ(reader.token_times(), (std::vector<double>{2, 3, 4}));
  EXPECT_EQ(reader.text(), "a");
  EXPECT_EQ(reader.finish_reason(), "length");
  ASSERT_TRUE(reader.usage().has_value());
  EXPECT_EQ(reader.usage()->prompt_tokens, 9);
  EXPECT_EQ(reader.usage()->completion_tokens, 8);
  EXPECT_EQ(reader.usage()->cached_tokens, 4);
}

TEST(AnswerReader, TakesBytesInAnyPieces) {
  const std::string stream =
      ": ping\r\n\r\ndata: {\"choices\":\r\ndata: [{\"text\":\"\"}]}\r\n\r\n"
      "data: {\"choices\":\rdata: [{\"text\":\"x\"}]}\r\r"
      "data:{\"choices\":[{\"text\":\"\",\"finish_reason\":\"stop\"}]}\n\n"
      "data: [DONE]\n\n";
  for (size_t piece = 1; piece <= stream.size(); ++piece) {
    AnswerReader reader(LoadApi::completions);
    for (size_t at = 0; at < stream.size(); at += piece)
      ASSERT_TRUE(reader.feed(std::string_view(stream).substr(at, piece), 1.0).ok()) << piece;
    EXPECT_EQ(reader.token_times().size(), 2u) << piece;  // one of them a special token's
    EXPECT_TRUE(reader.done()) << piece;
  }
}

TEST(AnswerReader, TokensWithoutATextComeWithTheEnd) {
  for (const LoadApi api : {LoadApi::chat, LoadApi::completions}) {
    AnswerReader reader(api);
    ASSERT_TRUE(reader
                    .feed("data: {\"choices\":[{\"text\":\"\",\"delta\":{},"
                          "\"finish_reason\":\"length\"}]}\n\n",
                          3.0)
                    .ok());
    EXPECT_EQ(reader.token_times(), std::vector<double>{3.0});
  }
}

TEST(AnswerReader, RefusesWhatIsNoAnswer) {
  const struct {
    const char* event;
    const char* says;
  } rows[] = {
      {"{", "an event of the answer"},
      {"[]", "a JSON array"},
      {"{}", "no list of choices"},
      {R"({"choices":[1]})", "no object"},
      {R"({"choices":[{}]})", "without a delta"},
      {R"({"choices":[],"usage":{"prompt_tokens":-1}})", "usage.prompt_tokens"},
      {R"({"choices":[],"usage":{"completion_tokens":"2"}})", "usage.completion_tokens"},
      {R"({"choices":[],"usage":[]})", "usage is no object"},
      {R"({"error":{"message":"no room"}})", "the stream says: no room"},
  };
  for (const auto& row : rows) {
    AnswerReader reader(LoadApi::chat);
    const auto fed = reader.feed(concat("data: ", row.event, "\n\n"), 1.0);
    ASSERT_FALSE(fed.ok()) << row.event;
    EXPECT_NE(fed.error().message.find(row.says), std::string::npos) << fed.error().message;
  }
  AnswerReader reader(LoadApi::chat);
  EXPECT_FALSE(reader.feed("data: [DONE]\n\ndata: {\"choices\":[]}\n\n", 1.0).ok());
  EventStream stream;
  const std::string long_line(EventStream::kEventBytesMax + 1, 'x');
  EXPECT_EQ(stream.feed(long_line, [](std::string_view) { return Result<void>(); }).error().code,
            ErrorCode::corrupt);
}

TEST(AnswerReader, ReadsErrorsOfAnyForm) {
  EXPECT_EQ(error_message(R"({"error":{"message":"a\nb","code":1}})"), "a b");
  EXPECT_EQ(error_message(R"({"error":"text"})"), "text");
  EXPECT_EQ(error_message(R"({"object":"error","message":"old"})"), "old");
  EXPECT_EQ(error_message("<html>"), "<html>");
  EXPECT_EQ(error_message(std::string(500, 'x')).size(), 200u);
}

}  // namespace
}  // namespace nibble
