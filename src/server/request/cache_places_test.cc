// Salts, and the places of chat prompts: with real prompts of the next turn and of other users as
// the judge of what is shared.
#include "server/request/cache_places.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "base/concat.h"
#include "server/request/cache_salt.h"
#include "server/testing/test_model.h"
#include "testing/source_dir.h"

namespace nibble {
namespace {

TEST(CacheSalt, SipHashMatchesThePublishedVectors) {
  const std::array<uint64_t, 2> key = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
  std::string bytes;
  for (char c = 0; c < 15; ++c) bytes.push_back(c);
  EXPECT_EQ(sip_hash(key, bytes), 0xa129ca6149be45e5U);  // of the paper, appendix A
  EXPECT_EQ(sip_hash(key, ""), 0x726fdb47dd0e0e31U);
}

TEST(CacheSalt, EveryKeyAndSaltHasItsOwn) {
  std::set<uint64_t> seen = {cache_salt_of(0, "")};
  EXPECT_EQ(*seen.begin(), 0U);
  for (const char* key : {"", "a", "b", "ab"})
    for (const char* salt : {"", "a", "b", "ab"})
      if (*key != 0 || *salt != 0) seen.insert(cache_salt_of(tenant_of(key), salt));
  EXPECT_EQ(seen.size(), 16U);
}

/// A tokenizer and a template, and what they make of conversations.
struct Prompts {
  Tokenizer tokenizer;
  ChatTemplate chat_template;

  struct Made {
    std::vector<TextPiece> pieces;
    std::vector<int32_t> ids;
  };
  Made make(const TemplateInput& input) const {
    auto rendered = chat_template.render(input);
    CHECK(rendered.ok(), rendered.error().message);
    auto ids = tokenizer.encode(rendered.value().pieces);
    CHECK(ids.ok());
    return {std::move(rendered.value().pieces), std::move(ids).value()};
  }
  CacheRequest places(const TemplateInput& input, ToolsMarked marked = ToolsMarked::no) const {
    const Made made = make(input);
    return find_cache_places(chat_template, tokenizer, input, made.pieces, made.ids, marked);
  }
  int32_t shared(const TemplateInput& a, const TemplateInput& b) const {
    const auto x = make(a).ids;
    const auto y = make(b).ids;
    return static_cast<int32_t>(std::ranges::mismatch(x, y).in1 - x.begin());
  }
};

Prompts pebble() {
  const std::string folder = concat(NIBBLE_SOURCE_DIR, "/pebble/model");
  auto tokenizer = Tokenizer::load(folder);
  CHECK(tokenizer.ok(), tokenizer.error().message);
  auto chat_template = load_chat_template(folder, Json());
  CHECK(chat_template.ok(), chat_template.error().message);
  return {std::move(tokenizer).value(), std::move(chat_template).value()};
}

Json message(const char* role, const std::string& content) {
  return Json(Json::Object{{"role", Json(role)}, {"content", Json(content)}});
}

std::string words(std::mt19937& random, int count) {
  static constexpr std::array kWords = {"river", "stone", "snow", "42", "<|im_end|>",
                                        "\n\n",  "moon",  "{}",   "  "};
  std::string text;
  for (int i = 0; i < count; ++i) text += concat(" ", kWords[random() % kWords.size()]);
  return text;
}

TemplateInput conversation(std::mt19937& random, const std::string& system, size_t turns) {
  Json::Array messages = {message("system", system)};
  for (size_t i = 0; i < turns; ++i) {
    messages.push_back(message("user", words(random, 40)));
    messages.push_back(message("assistant", words(random, 30)));
    messages.back().set("reasoning_content", Json(words(random, 20)));
  }
  messages.push_back(message("user", words(random, 40)));
  return {.messages = Json(std::move(messages)), .tools = {}, .documents = {}, .kwargs = {}};
}

TemplateInput followed(TemplateInput input, std::mt19937& random) {
  input.messages.push_back(message("assistant", words(random, 30)));
  input.messages.as_array().back().set("reasoning_content", Json(words(random, 20)));
  input.messages.push_back(message("user", words(random, 10)));
  return input;
}

TEST(CachePlaces, AreSharedByTheNextTurnAndByOtherUsers) {
  const Prompts prompts = pebble();
  std::mt19937 random(3);
  for (int round = 0; round < 40; ++round) {
    // Unicode normalisation shortens this word: then bytes cannot be counted.
    const std::string system =
        words(random, 60 + round) + (round % 2 == 0 ? "" : " e\u0301te\u0301");
    const TemplateInput input = conversation(random, system, static_cast<size_t>(round % 4));
    const CacheRequest cache = prompts.places(input);
    ASSERT_EQ(cache.boundaries.size(), 2U) << round;
    const int32_t with_other = prompts.shared(input, conversation(random, system, 2));
    EXPECT_LE(cache.boundaries[0], with_other) << round;
    EXPECT_GE(cache.boundaries[0], with_other - 12) << round;
    const int32_t with_next = prompts.shared(input, followed(input, random));
    EXPECT_LE(cache.boundaries[1], with_next) << round;
    EXPECT_GE(cache.boundaries[1], with_next - 6) << round;
    EXPECT_LT(cache.boundaries[1], static_cast<int32_t>(prompts.make(input).ids.size()));
    EXPECT_EQ(cache.pinned_tokens, 0);
  }
}

TEST(CachePlaces, ALoopOfToolsAlsoGoesOnWhereItIs) {
  const Prompts prompts = pebble();
  std::mt19937 random(4);
  TemplateInput input = conversation(random, words(random, 80), 1);
  input.messages.push_back(message("assistant", words(random, 10)));
  input.messages.push_back(message("tool", words(random, 40)));
  const CacheRequest cache = prompts.places(input);
  ASSERT_GE(cache.boundaries.size(), 2U);
  TemplateInput more = input;
  more.messages.push_back(message("assistant", words(random, 10)));
  more.messages.push_back(message("tool", words(random, 40)));
  const int32_t shared = prompts.shared(input, more);
  EXPECT_LE(cache.boundaries.back(), shared);
  EXPECT_GE(cache.boundaries.back(), shared - 6);
}

/// The first token that two prompts do not share stands right after a tag, which counts.
TEST(CachePlaces, ATagAtTheEndOfWhatIsSharedIsShared) {
  auto tagged = ChatTemplate::compile(
      "{%- for m in messages %}{{- '<|im_start|>' + m.content + '<|im_end|>' }}{%- endfor %}",
      "tagged");
  ASSERT_TRUE(tagged.ok());
  const Prompts prompts{testing::served_model().tokenizer, std::move(tagged).value()};
  const auto asking = [](const std::string& question) {
    return TemplateInput{.messages = Json(Json::Array{message("system", std::string(100, 'a')),
                                                      message("user", question)})};
  };
  const int32_t shared = prompts.shared(asking("one"), asking("two"));
  EXPECT_EQ(shared, 1 + 100 + 1 + 1);
  const CacheRequest cache = prompts.places(asking("one"));
  ASSERT_FALSE(cache.boundaries.empty());
  EXPECT_EQ(cache.boundaries.front(), shared);
}

TEST(CachePlaces, ShortPromptsHaveNone) {
  const Prompts prompts = pebble();
  const TemplateInput input{.messages = Json(Json::Array{message("user", "hi")})};
  EXPECT_TRUE(prompts.places(input).boundaries.empty());
}

TEST(CachePlaces, ATemplateThatRefusesHasFewerPlaces) {
  // Raises for a conversation that ends in another message than the one it knows.
  auto only = ChatTemplate::compile(
      "{%- if messages[-1].content | length < 5 %}{{- raise_exception('no') }}{%- endif %}"
      "{%- for m in messages %}{{- m.content }}{%- endfor %}",
      "picky");
  ASSERT_TRUE(only.ok());
  const Prompts prompts{testing::served_model().tokenizer, std::move(only).value()};
  const TemplateInput input{.messages = Json(Json::Array{message("user", std::string(200, 'a'))})};
  EXPECT_TRUE(prompts.places(input).boundaries.empty());
}

Json marked(Json object) {
  object.set("cache_control", Json(Json::Object{{"type", Json("ephemeral")}}));
  return object;
}

TEST(CachePlaces, AMarkPinsWhatIsBeforeIt) {
  const Prompts prompts = pebble();
  std::mt19937 random(6);
  for (int round = 0; round < 20; ++round) {
    TemplateInput input = conversation(random, words(random, 80), 1);
    const TemplateInput plain = input;
    Json::Array& messages = input.messages.as_array();
    messages[1] = marked(messages[1]);
    EXPECT_EQ(prompts.make(input).ids, prompts.make(plain).ids);
    const int32_t pinned = prompts.places(input).pinned_tokens;
    TemplateInput other = plain;
    other.messages.as_array().resize(2);
    const int32_t shared = prompts.shared(input, followed(other, random));
    EXPECT_LE(pinned, shared) << round;
    EXPECT_GE(pinned, shared - 6) << round;
  }
}

TEST(CachePlaces, AMarkedSystemPromptIsPinnedWhoeverAsks) {
  const Prompts prompts = pebble();
  std::mt19937 random(9);
  TemplateInput input = conversation(random, words(random, 120), 0);
  input.messages.as_array()[0] = marked(input.messages.as_array()[0]);
  const CacheRequest cache = prompts.places(input);
  EXPECT_GE(cache.pinned_tokens, 120);
  EXPECT_EQ(cache.pinned_tokens, cache.boundaries.front());
}

TEST(CachePlaces, AMarkInsideAMessagePinsUpToThere) {
  const Prompts prompts = pebble();
  std::mt19937 random(7);
  const auto part = [](const std::string& text) {
    return Json(Json::Object{{"type", Json("text")}, {"text", Json(text)}});
  };
  const std::string document = words(random, 200);
  const auto asking = [&](const std::string& question) {
    Json user(Json::Object{{"role", Json("user")}});
    user.set("content", Json(Json::Array{marked(part(document)), part(question)}));
    return TemplateInput{.messages = Json(Json::Array{user})};
  };
  const int32_t pinned = prompts.places(asking(" first question?")).pinned_tokens;
  const int32_t shared = prompts.shared(asking(" first question?"), asking("Another, longer one"));
  EXPECT_LE(pinned, shared);
  EXPECT_GE(pinned, shared - 6);
  EXPECT_GT(pinned, 200);
}

TEST(CachePlaces, MarksOfToolsAreTakenOut) {
  const Json tool =
      parse_json(R"({"type":"function","function":{"name":"f","description":"d"}})", "tool")
          .value();
  Json tools(Json::Array{tool, marked(tool)});
  EXPECT_TRUE(strip_cache_marks(tools));
  EXPECT_EQ(tools, Json(Json::Array{tool, tool}));
  EXPECT_FALSE(strip_cache_marks(tools));
  const Prompts prompts = pebble();
  std::mt19937 random(8);
  TemplateInput input = conversation(random, words(random, 80), 0);
  input.tools = tools;
  const CacheRequest cache = prompts.places(input, ToolsMarked::yes);
  EXPECT_EQ(cache.pinned_tokens, cache.boundaries.front());
}

TEST(CachePlaces, FindsTheLastMark) {
  const auto find = [](const char* text) {
    return find_cache_mark(parse_json(text, "messages").value());
  };
  EXPECT_FALSE(find(R"([{"role":"user","content":"x","cache_control":null}])"));
  const auto part = find(R"([{"content":[{"cache_control":{}},{}]},{"content":"x"}])");
  ASSERT_TRUE(part);
  EXPECT_EQ(part->message, 0U);
  EXPECT_EQ(part->part, 0U);
  const auto whole =
      find(R"([{"content":"x","cache_control":{}},{"content":[{},{"cache_control":{}}]}])");
  EXPECT_EQ(whole->message, 1U);
  EXPECT_FALSE(whole->part);
}

}  // namespace
}  // namespace nibble
