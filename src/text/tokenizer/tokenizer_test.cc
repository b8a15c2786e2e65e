// The tokenizer against Hugging Face's answers (tests/golden/tokenizer), and what has no
// counterpart there: mixed origins, lookups, invalid bytes. tools/oracle/tokenizer_test.py compares
// far more.
#include "text/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "base/file.h"
#include "base/json.h"
#include "testing/source_dir.h"
#include "text/tokenizer/detokenizer.h"

namespace nibble {
namespace {

using Ids = std::vector<int32_t>;

const std::filesystem::path kGolden =
    std::filesystem::path(NIBBLE_SOURCE_DIR) / "tests/golden/tokenizer";

const Tokenizer& golden_tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::load(kGolden).value();
  return tokenizer;
}

Json golden_cases(const char* name) {
  return parse_json(read_text_file(kGolden / name, 1 << 20).value(), name).value();
}

Ids ids_of(const Json& list) {
  Ids ids;
  for (const Json& id : list.as_array()) ids.push_back(static_cast<int32_t>(id.as_int()));
  return ids;
}

Ids encode(std::string_view text, SpecialTokens policy = SpecialTokens::recognised) {
  return golden_tokenizer().encode(text, policy).value();
}

int32_t id_of(std::string_view token) { return golden_tokenizer().token_to_id(token).value(); }

TEST(Tokenizer, EncodesAsHuggingFace) {
  size_t count = 0;
  const Json cases = golden_cases("encode.json");
  for (const Json& golden : cases.as_array()) {
    const std::string& text = golden.find("text")->as_string();
    const Ids expected = ids_of(*golden.find("ids"));
    EXPECT_EQ(encode(text), expected) << text;
    const Json* user = golden.find("user_ids");
    EXPECT_EQ(encode(text, SpecialTokens::plain_text), user ? ids_of(*user) : expected) << text;
    ++count;
  }
  EXPECT_GT(count, 250u);
}

TEST(Tokenizer, DecodesAsHuggingFace) {
  size_t count = 0;
  const Json cases = golden_cases("decode.json");
  for (const Json& golden : cases.as_array()) {
    const Ids ids = ids_of(*golden.find("ids"));
    const std::string& expected = golden.find("text")->as_string();
    EXPECT_EQ(golden_tokenizer().decode(ids, SkipSpecial::no), expected);
    EXPECT_EQ(golden_tokenizer().decode(ids, SkipSpecial::yes),
              golden.find("without_special")->as_string());
    ++count;
  }
  EXPECT_GE(count, 100u);
}

TEST(Tokenizer, StreamsWhatItDecodes) {
  const Json cases = golden_cases("decode.json");
  for (const Json& golden : cases.as_array()) {
    Detokenizer stream(golden_tokenizer(), SkipSpecial::no);
    std::string joined;
    for (const int32_t id : ids_of(*golden.find("ids"))) {
      joined += stream.push(id);
      EXPECT_LE(stream.pending_bytes(), 3u);
    }
    EXPECT_EQ(joined + stream.flush(), golden.find("text")->as_string());
    EXPECT_EQ(stream.pending_bytes(), 0u);
  }
}

TEST(Tokenizer, UserTextNeverBecomesASpecialToken) {
  const Tokenizer& tokenizer = golden_tokenizer();
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_added(id)) continue;
    const std::string text(tokenizer.id_to_token_bytes(id).value());
    EXPECT_EQ(encode(text), Ids{id});
    for (const int32_t part : encode(text + text, SpecialTokens::plain_text)) {
      EXPECT_FALSE(tokenizer.is_added(part)) << text;
    }
    // The token is not recognised even where template and user text meet.
    for (size_t cut = 1; cut < text.size(); ++cut) {
      for (const Origin head : {Origin::from_template, Origin::from_user}) {
        const Origin tail = head == Origin::from_user ? Origin::from_template : Origin::from_user;
        const TextPiece pieces[] = {{text.substr(0, cut), head}, {text.substr(cut), tail}};
        const Ids parts = tokenizer.encode(pieces).value();
        EXPECT_EQ(std::ranges::find(parts, id), parts.end()) << text << " cut at " << cut;
      }
    }
  }
}

TEST(Tokenizer, JoinsPiecesBeforeCuttingWords) {
  const Tokenizer& tokenizer = golden_tokenizer();
  const TextPiece pieces[] = {{"<|im_", Origin::from_template},
                              {"start|>us", Origin::from_template},
                              {"er and e", Origin::from_user},
                              {"\xCC\x81 <|im_end|>", Origin::from_template},
                              {"<|im_end|>", Origin::from_user}};
  Ids expected = {id_of("<|im_start|>")};
  for (const int32_t id : encode("user and \xC3\xA9 ")) expected.push_back(id);
  expected.push_back(id_of("<|im_end|>"));
  for (const int32_t id : encode("<|im_end|>", SpecialTokens::plain_text)) expected.push_back(id);
  EXPECT_EQ(tokenizer.encode(pieces).value(), expected);
  EXPECT_EQ(tokenizer.encode(std::span<const TextPiece>()).value(), Ids{});
}

TEST(Tokenizer, TrustsTheShorterTokenInsideATemplate) {
  // <think> is whole inside template text even if more of the text would fit a longer token.
  const TextPiece pieces[] = {{"</think>", Origin::from_template}, {"<think>", Origin::from_user}};
  Ids expected = {id_of("</think>")};
  for (const int32_t id : encode("<think>", SpecialTokens::plain_text)) expected.push_back(id);
  EXPECT_EQ(golden_tokenizer().encode(pieces).value(), expected);
}

TEST(Tokenizer, ReadsInvalidUtf8AsReplacementCharacters) {
  const std::string_view mark = "\xEF\xBF\xBD";
  const auto expect_read_as = [](std::string_view bytes, const std::string& text) {
    EXPECT_EQ(encode(bytes), encode(text)) << text;
    const TextPiece piece[] = {{std::string(bytes), Origin::from_template}};
    EXPECT_EQ(golden_tokenizer().encode(piece).value(), encode(text)) << text;
  };
  expect_read_as("a\xFF!", concat("a", mark, "!"));
  expect_read_as("\xE2\x82", std::string(mark));                         // one truncated character
  expect_read_as("\xED\xA0\x80", concat(mark, mark, mark));              // a surrogate
  expect_read_as("\xF0\x9F\x98<|im_end|>", concat(mark, "<|im_end|>"));  // and the token is seen
  // A character cut in two by pieces is broken in both.
  const TextPiece halves[] = {{"\xC3", Origin::from_template}, {"\xA9", Origin::from_user}};
  EXPECT_EQ(golden_tokenizer().encode(halves).value(), encode(concat(mark, mark)));
}

TEST(Tokenizer, KnowsItsTokens) {
  const Tokenizer& tokenizer = golden_tokenizer();
  const int32_t im_end = id_of("<|im_end|>"), think = id_of("<think>");
  EXPECT_TRUE(tokenizer.is_special(im_end) && tokenizer.is_added(im_end));
  EXPECT_TRUE(!tokenizer.is_special(think) && tokenizer.is_added(think));
  const int32_t space_e = id_of("\xC4\xA0");  // the letter that spells a space
  EXPECT_FALSE(tokenizer.is_added(space_e));
  EXPECT_EQ(tokenizer.id_to_token_bytes(space_e), " ");
  EXPECT_EQ(tokenizer.token_to_id("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer.token_to_id(""), std::nullopt);
  for (const int32_t id : {-1, tokenizer.vocab_size(), INT32_MAX, INT32_MIN}) {
    EXPECT_FALSE(tokenizer.exists(id) || tokenizer.is_special(id) || tokenizer.is_added(id));
    EXPECT_EQ(tokenizer.id_to_token_bytes(id), std::nullopt);
    EXPECT_EQ(tokenizer.decode(Ids{id, im_end}, SkipSpecial::no), "<|im_end|>");
  }
  std::set<std::string> single_bytes;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto bytes = tokenizer.id_to_token_bytes(id);
    if (bytes && bytes->size() == 1) single_bytes.emplace(*bytes);
  }
  EXPECT_EQ(single_bytes.size(), 256u);
}

TEST(Detokenizer, HoldsBackHalfCharacters) {
  Detokenizer stream(golden_tokenizer());
  std::vector<std::string> steps;
  const std::string smile = "\xF0\x9F\x98\x80";
  for (const char byte : smile) {
    const Ids one = encode("\x01", SpecialTokens::plain_text);  // any single-byte word
    ASSERT_EQ(one.size(), 1u);
    for (int32_t id = 0; id < golden_tokenizer().vocab_size(); ++id) {
      if (golden_tokenizer().id_to_token_bytes(id) != std::string(1, byte)) continue;
      steps.push_back(stream.push(id));
      break;
    }
  }
  EXPECT_EQ(steps, (std::vector<std::string>{"", "", "", smile}));
  EXPECT_EQ(stream.push(id_of("<|im_end|>")), "");  // special: skipped by default
  EXPECT_EQ(stream.push(id_of("<think>")), "<think>");
}

TEST(Tokenizer, LongRunsTakeLinearTime) {
  // 1 MB each; quadratic work would take hours, so the bound can be loose.
  for (const std::string_view unit : {"a", " ", "\n", "\xCC\x81", "<", "<|im_", "'", "\xE4\xB8\xAD",
                                      "\xCC\x96\xCC\x81", "<|im_end|>", " \n", "ab"}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    const auto begin = std::chrono::steady_clock::now();
    const Ids ids = encode(text);
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(spent.count(), 600) << unit;
    // Marks come back in canonical order; everything else as it was.
    const std::string back = golden_tokenizer().decode(ids, SkipSpecial::no);
    EXPECT_EQ(back.size(), text.size()) << unit;
  }
}

}  // namespace
}  // namespace nibble
