// Tokens to events: tags by id, characters cut in half, stop strings across token borders.
#include "server/decode/choice_decoder.h"

#include <gtest/gtest.h>

#include <random>

#include "server/testing/test_model.h"

namespace nibble {
namespace {

std::vector<int32_t> ids_of(const ServedModel& model, const std::string& text) {
  return model.tokenizer.encode(text, SpecialTokens::recognised).value();
}

struct Decoded {
  std::string reasoning;
  std::string content;
  std::vector<size_t> sizes;  // bytes released after each token
};

Decoded decode(const std::string& text, ChoiceDecoder::Options options) {
  const ServedModel model = testing::served_model();
  ChoiceDecoder decoder(model, std::move(options));
  Decoded result;
  const auto collect = [&] {
    for (const OutputEvent& event : decoder.take())
      (event.kind == OutputEvent::Kind::reasoning ? result.reasoning : result.content) +=
          event.text;
    result.sizes.push_back(result.reasoning.size() + result.content.size());
  };
  for (const int32_t id : ids_of(model, text)) {
    decoder.push(id);
    collect();
  }
  decoder.finish();
  collect();
  return result;
}

TEST(StopMatcher, FindsStopsHoweverTheTextIsCut) {
  struct Case {
    std::vector<std::string> stops;
    const char* text;
    const char* kept;
    const char* matched;  // "" for none
  };
  const Case cases[] = {
      {{"END"}, "abcENDdef", "abc", "END"},    {{"END"}, "abcEN", "abcEN", ""},
      {{"aab"}, "aaab", "a", "aab"},           {{"abab", "ba"}, "xabab", "xa", "ba"},
      {{"b", "ab"}, "xab", "x", "ab"},         {{"abcd", "bc"}, "abcd", "a", "bc"},
      {{"\n\n"}, "a\nb\n\nc", "a\nb", "\n\n"}, {{"é"}, "cafés", "caf", "é"},
      {{}, "anything", "anything", ""},        {{"aaaa"}, "aaabaaab", "aaabaaab", ""},
  };
  std::mt19937 random(1);
  for (const Case& c : cases) {
    for (int round = 0; round < 50; ++round) {
      StopMatcher matcher(c.stops);
      std::string kept;
      std::string_view rest = c.text;
      while (!rest.empty()) {
        const size_t size = std::min<size_t>(1 + random() % 4, rest.size());
        kept += matcher.push(rest.substr(0, size));
        rest.remove_prefix(size);
      }
      kept += matcher.flush();
      ASSERT_EQ(kept, c.kept) << c.text;
      ASSERT_EQ(matcher.matched().value_or(""), c.matched) << c.text;
    }
  }
}

TEST(StopStrings, EndsTheSequenceAtTheToken) {
  const ServedModel model = testing::served_model();
  StopStrings stops(model.tokenizer, {"stop"});
  EXPECT_EQ(stops.accept(ids_of(model, "a st")), std::nullopt);
  EXPECT_EQ(stops.accept(ids_of(model, "op it")), size_t{2});
  StopStrings again(model.tokenizer, {"stop"});
  EXPECT_EQ(again.accept(ids_of(model, "a sto")), std::nullopt);
  again.rollback(2);  // "a s"
  EXPECT_EQ(again.accept(ids_of(model, "p")), std::nullopt);
  EXPECT_EQ(again.accept(ids_of(model, "stop")), size_t{4});
}

TEST(ChoiceDecoder, SplitsByTagId) {
  const Decoded got = decode("one</think>\n\ntwo", {.start = StartIn::reasoning});
  EXPECT_EQ(got.reasoning, "one");
  EXPECT_EQ(got.content, "two");
  const Decoded whole = decode("one</think>two", {.split = SplitReasoning::no});
  EXPECT_EQ(whole.content, "one</think>two");
}

TEST(ChoiceDecoder, NeverReleasesHalfACharacter) {
  const Decoded got = decode("é🙂", {});
  EXPECT_EQ(got.content, "é🙂");
  EXPECT_EQ(got.sizes, (std::vector<size_t>{0, 2, 2, 2, 2, 6, 6}));
}

TEST(ChoiceDecoder, StopStringMayCutATag) {
  const Decoded got =
      decode("one</think>\n\ntwo", {.stops = {"</th"}, .start = StartIn::reasoning});
  EXPECT_EQ(got.reasoning, "one");
  EXPECT_EQ(got.content, "");
  const Decoded later =
      decode("one</think>\n\ntwo", {.stops = {"</thin</"}, .start = StartIn::reasoning});
  EXPECT_EQ(later.reasoning, "one");
  EXPECT_EQ(later.content, "two");
  const Decoded held = decode("a</think>c", {.stops = {">b"}, .start = StartIn::reasoning});
  EXPECT_EQ(held.reasoning, "a");
  EXPECT_EQ(held.content, "c");
  const Decoded across = decode("a</think>b", {.stops = {">b"}, .start = StartIn::reasoning});
  EXPECT_EQ(across.reasoning, "a");
  EXPECT_EQ(across.content, "");
}

TEST(ChoiceDecoder, NothingOfAStopStringLeaks) {
  const Decoded got = decode("abc stop", {.stops = {"stop"}});
  EXPECT_EQ(got.content, "abc ");
  for (const size_t size : got.sizes) EXPECT_LE(size, 4U);
}

TEST(ChoiceDecoder, StartsWhereThePromptLeftOff) {
  const ServedModel model = testing::served_model();
  EXPECT_EQ(start_of(model, ids_of(model, "a<think>\n")), StartIn::reasoning);
  EXPECT_EQ(start_of(model, ids_of(model, "a<think>\n\n</think>\n\n")), StartIn::content);
  EXPECT_EQ(start_of(model, ids_of(model, "abc")), StartIn::content);
}

}  // namespace
}  // namespace nibble
