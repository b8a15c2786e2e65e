// Tokenizer files: every shape that is read, and one line for everything that is refused. The files
// are the golden tokenizer with one thing changed.
#include "text/tokenizer/tokenizer_loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/file.h"
#include "base/json.h"
#include "testing/source_dir.h"
#include "testing/test_files.h"
#include "text/tokenizer/tokenizer.h"

namespace nibble {
namespace {

using Ids = std::vector<int32_t>;

const std::string& golden_text() {
  static const std::string text = read_text_file(std::filesystem::path(NIBBLE_SOURCE_DIR) /
                                                     "tests/golden/tokenizer/tokenizer.json",
                                                 1 << 20)
                                      .value();
  return text;
}

Json golden() { return parse_json(golden_text(), "golden").value(); }

Json json(std::string_view text) { return parse_json(text, "test").value(); }

Json& member(Json& root, std::initializer_list<std::string_view> path) {
  Json* at = &root;
  for (const auto key : path) at = at->find(key);
  return *at;
}

Result<Tokenizer> load(const Json& root, std::string_view config = "") {
  return Tokenizer::parse(root.dump(), config, "tokenizer.json");
}

Json added(int64_t id, std::string_view content, std::string_view flag = "", bool value = true) {
  Json token{Json::Object{}};
  token.set("id", id);
  token.set("content", content);
  token.set("normalized", false);
  if (!flag.empty()) token.set(flag, value);
  return token;
}

struct Refusal {
  const char* name;
  std::function<void(Json&)> change;
  const char* words;  // part of the message
};

void expect_refusals(const std::vector<Refusal>& refusals) {
  for (const Refusal& refusal : refusals) {
    Json root = golden();
    refusal.change(root);
    const auto result = load(root);
    ASSERT_FALSE(result.ok()) << refusal.name;
    const std::string& message = result.error().message;
    EXPECT_NE(message.find(refusal.words), message.npos) << refusal.name << ": " << message;
    EXPECT_EQ(message.rfind("tokenizer.json", 0), 0u) << message;
    EXPECT_EQ(message.find('\n'), message.npos) << message;
    EXPECT_LT(message.size(), 500u) << refusal.name;
  }
}

TEST(TokenizerLoader, RefusesBrokenVocabularies) {
  const auto vocab = [](Json& root) -> Json& { return member(root, {"model", "vocab"}); };
  const auto merges = [](Json& root) -> Json& { return member(root, {"model", "merges"}); };
  expect_refusals({
      {"no model", [](Json& r) { r.set("model", Json()); }, "model: expected an object"},
      {"vocab is a list", [](Json& r) { r.find("model")->set("vocab", Json::Array{}); },
       "model.vocab: expected an object"},
      {"no merges", [](Json& r) { r.find("model")->set("merges", Json()); },
       "model.merges: expected a list"},
      {"fractional id", [&](Json& r) { vocab(r).set("!", 0.5); },
       "expected integer ids, found 0.5"},
      {"negative id", [&](Json& r) { vocab(r).set("!", -1); },
       "id of token \"!\": expected 0 to 2097151, found -1"},
      {"huge id", [&](Json& r) { vocab(r).set("!", 2097152); }, "found 2097152"},
      {"id twice", [&](Json& r) { vocab(r).set("!", 1); }, "token id 1 is used twice"},
      {"empty token", [&](Json& r) { vocab(r).set("", 5000); }, "text of token 5000"},
      {"long token", [&](Json& r) { vocab(r).set(std::string(65537, 'a'), 5000); },
       "expected 1 to 65536 bytes, found 65537"},
      {"byte missing",
       [&](Json& r) {
         vocab(r).as_object().erase(vocab(r).as_object().begin());
         merges(r) = Json(Json::Array{});
       },
       "a vocabulary without all 256 bytes"},
      {"merge of unknown", [&](Json& r) { merges(r).push_back(json(R"(["qqq","q"])")); },
       "found unknown \"qqq\""},
      {"merge into unknown", [&](Json& r) { merges(r).push_back(json(R"(["!","!"])")); },
       "found unknown \"!!\""},
      {"merge of three", [&](Json& r) { merges(r).push_back("a b c"); }, "model.merges"},
      {"merge without space", [&](Json& r) { merges(r).push_back("ab"); }, "model.merges"},
      {"merge of numbers", [&](Json& r) { merges(r).push_back(json("[1,2]")); }, "model.merges"},
  });
}

TEST(TokenizerLoader, RefusesUnsupportedModelsByName) {
  const auto set = [](std::string_view key, std::string_view value) {
    return [key, value](Json& root) { root.find("model")->set(key, json(value)); };
  };
  expect_refusals({
      {"type", set("type", "\"WordPiece\""), "model.type is not supported: expected \"BPE\""},
      {"dropout", set("dropout", "0.1"), "dropout is not supported"},
      {"prefix", set("continuing_subword_prefix", "\"##\""), "continuing_subword_prefix"},
      {"suffix", set("end_of_word_suffix", "\"</w>\""), "end_of_word_suffix"},
      {"byte fallback", set("byte_fallback", "true"), "byte_fallback is not supported"},
      {"ignore_merges", set("ignore_merges", "\"yes\""), "ignore_merges: expected true or false"},
  });
}

/// Files state them although they change nothing.
TEST(TokenizerLoader, TakesSettingsThatChangeNothing) {
  const std::pair<const char*, std::vector<const char*>> kNeutral[] = {
      {"dropout", {"null", "0", "0.0"}},
      {"continuing_subword_prefix", {"null", "\"\""}},
      {"end_of_word_suffix", {"null", "\"\""}},
      {"byte_fallback", {"null", "false"}}};
  for (const auto& [key, values] : kNeutral)
    for (const char* value : values) {
      Json root = golden();
      root.find("model")->set(key, json(value));
      const auto result = load(root);
      EXPECT_TRUE(result.ok()) << key << " " << value << ": " << result.error().message;
    }
}

TEST(TokenizerLoader, RefusesUnsupportedPipelinesByName) {
  const auto set = [](std::string_view key, std::string_view value) {
    return [key, value](Json& root) { root.set(key, json(value)); };
  };
  const std::string byte_level =
      R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})";
  const auto split = [&](std::string_view inside) {
    return concat(R"({"type":"Sequence","pretokenizers":[{"type":"Split",)", inside, "},",
                  byte_level, "]}");
  };
  const std::vector<std::pair<std::string, const char*>> pre_tokenizers = {
      {"null", "a pre_tokenizer without ByteLevel"},
      {R"({"type":"Metaspace"})", "found \"Metaspace\""},
      {R"({"type":"ByteLevel"})", "add_prefix_space of ByteLevel"},
      {R"({"type":"Sequence"})", "pre_tokenizer.pretokenizers: expected a list"},
      {split(R"("pattern":{"String":" "},"behavior":"Isolated")"), "a pattern {\"Regex\": ...}"},
      {split(R"("pattern":{"Regex":"a"},"behavior":"Removed")"), "Split behavior"},
      {split(R"("pattern":{"Regex":"a"},"behavior":"Isolated","invert":true)"), "invert"},
      {split(R"("pattern":{"Regex":"a("},"behavior":"Isolated")"), "not a regular expression"},
      {split(R"("pattern":{"Regex":"a*"},"behavior":"Isolated")"), "an empty match"},
      {split(R"("pattern":{"Regex":"\\w+"},"behavior":"Isolated")"), "\\w"},
  };
  for (const auto& [value, words] : pre_tokenizers) {
    expect_refusals({{value.c_str(), set("pre_tokenizer", value), words}});
  }
  expect_refusals({
      {"normalizer", set("normalizer", R"({"type":"Lowercase"})"), "expected NFC or none"},
      {"NFKC inside", set("normalizer", R"({"type":"Sequence","normalizers":[{"type":"NFKC"}]})"),
       "\"NFKC\""},
      {"post", set("post_processor", R"({"type":"TemplateProcessing"})"),
       "post_processor is not supported"},
      {"no decoder", set("decoder", "null"), "decoder is not supported: expected ByteLevel"},
      {"decoder", set("decoder", R"({"type":"WordPiece"})"), "found \"WordPiece\""},
  });
}

TEST(TokenizerLoader, RefusesContradictoryAddedTokens) {
  const auto add = [](Json token) {
    return [token](Json& root) { root.find("added_tokens")->push_back(token); };
  };
  expect_refusals({
      {"not a list", [](Json& r) { r.set("added_tokens", json("{}")); }, "added_tokens: expected"},
      {"no id", add(json(R"({"content":"<x>"})")), "objects with an integer id"},
      {"no content", add(json(R"({"id":9000})")), "content of added token 9000"},
      {"flag", add(json(R"({"id":9000,"content":"<x>","special":1})")), "special: expected true"},
      {"long", add(added(9000, std::string(1025, 'x'))), "at most 1024 bytes, found 1025"},
      {"single_word", add(added(9000, "<x>", "single_word")), "single_word of added token 9000"},
      {"id in use", add(added(3, "<x>")), "token id 3 is used twice"},
      {"other id", add(added(9000, "<|im_end|>")), "id of added token \"<|im_end|>\": expected"},
      {"reachable byte", add(added(0, "!", "special")), "that ordinary text can become"},
  });
}

TEST(TokenizerLoader, RefusesEveryTruncation) {
  const std::string& whole = golden_text();
  for (size_t length = 0; length + 2 < whole.size(); length += 1 + length / 7) {
    const auto result = Tokenizer::parse(whole.substr(0, length), "", "tokenizer.json");
    ASSERT_FALSE(result.ok()) << length;
    EXPECT_EQ(result.error().code, ErrorCode::corrupt) << length;
  }
}

TEST(TokenizerLoader, ReadsBothMergeShapesAndOldFiles) {
  const Ids expected = load(golden())
                           .value()
                           .encode(
                               "Gr\xC3\xBC\xC3\x9F"
                               "e in 2 lines\n\n",
                               {})
                           .value();
  Json root = golden();
  for (Json& merge : member(root, {"model", "merges"}).as_array()) {
    merge = Json(concat(merge.as_array()[0].as_string(), " ", merge.as_array()[1].as_string()));
  }
  root.find("model")->set("type", Json());
  root.set("truncation", json(R"({"max_length":2})"));  // transformers resets it on every call
  root.set("post_processor", Json());
  EXPECT_EQ(load(root)
                .value()
                .encode("Gr\xC3\xBC\xC3\x9F"
                        "e in 2 lines\n\n",
                        {})
                .value(),
            expected);
}

TEST(TokenizerLoader, TheConfigurationCompletesTheTokens) {
  Json root = golden();
  const int64_t next = load(root).value().vocab_size();
  const std::string config =
      concat(R"({"eos_token":"<think>","model_max_length":1e30,"pad_token":null,)",
             R"("extra_special_tokens":["<tool_call>","<none>"],)", R"("added_tokens_decoder":{")",
             next, R"(":{"content":"<new>","special":true},")", next + 2,
             R"(":{"content":"<gap>","lstrip":true,"normalized":false,"special":false},")",
             *load(root).value().token_to_id("<|im_end|>"),
             R"(":{"content":"<|im_end|>","normalized":false,"special":false}}})");
  const Tokenizer tokenizer = load(root, config).value();
  EXPECT_EQ(tokenizer.vocab_size(), next + 3);
  EXPECT_TRUE(tokenizer.exists(static_cast<int32_t>(next)));
  EXPECT_FALSE(tokenizer.exists(static_cast<int32_t>(next + 1)));  // a hole
  EXPECT_EQ(tokenizer.eos_token_id(), tokenizer.token_to_id("<think>"));
  EXPECT_TRUE(tokenizer.is_special(*tokenizer.token_to_id("<think>")));
  EXPECT_TRUE(tokenizer.is_special(*tokenizer.token_to_id("<tool_call>")));
  EXPECT_TRUE(tokenizer.is_special(*tokenizer.token_to_id("<|im_end|>")));  // once is for ever
  EXPECT_FALSE(tokenizer.is_special(*tokenizer.token_to_id("</think>")));
  const Ids ids = tokenizer.encode("<new> \n<gap>", SpecialTokens::recognised).value();
  EXPECT_EQ(ids, (Ids{static_cast<int32_t>(next), static_cast<int32_t>(next + 2)}));
  for (const auto& [bad, words] : std::vector<std::pair<const char*, const char*>>{
           {"[]", "tokenizer_config.json: the file: expected an object"},
           {"{", "tokenizer_config.json is not valid JSON"},
           {R"({"added_tokens_decoder":{"1x":{"content":"y"}}})", "token ids as keys"},
           {R"({"added_tokens_decoder":{"-4":{"content":"y"}}})", "found -4"},
           {R"({"added_tokens_decoder":{"99999999999999999999":{"content":"y"}}})", "token ids"}}) {
    const auto refused = load(root, bad);
    ASSERT_FALSE(refused.ok()) << bad;
    EXPECT_NE(refused.error().message.find(words), std::string::npos) << refused.error().message;
  }
}

TEST(TokenizerLoader, NormalizedTokensMatchAfterNfcAndOnlyTemplateText) {
  Json root = golden();
  const auto id = static_cast<int32_t>(load(root).value().vocab_size());
  root.find("added_tokens")->push_back(added(id, "<caf\xC3\xA9>", "normalized"));
  root.find("added_tokens")->push_back(added(id + 1, "<e\xCC\x81>", "normalized"));  // to byte E9
  const Tokenizer tokenizer = load(root).value();
  const auto pieces = [&](std::string_view head, std::string_view middle, std::string_view tail) {
    const TextPiece made[] = {{std::string(head), Origin::from_template},
                              {std::string(middle), Origin::from_user},
                              {std::string(tail), Origin::from_template}};
    return tokenizer.encode(made).value();
  };
  const auto holds = [&](const Ids& ids) { return std::ranges::count(ids, id); };
  EXPECT_EQ(tokenizer.encode("<cafe\xCC\x81>", SpecialTokens::recognised).value(), Ids{id});
  EXPECT_EQ(tokenizer.decode(Ids{id + 1}, SkipSpecial::no), "<\xEF\xBF\xBD>");
  EXPECT_EQ(holds(tokenizer.encode("<cafe\xCC\x81>", SpecialTokens::plain_text).value()), 0);
  EXPECT_EQ(holds(pieces("e\xCC\x81<cafe\xCC\x81>", "e\xCC\x81", "<cafe\xCC\x81>e\xCC\x81")), 2);
  EXPECT_EQ(holds(pieces("<caf", "e\xCC\x81", ">")), 0);
  EXPECT_EQ(holds(pieces("<cafe", "\xCC\x81", ">")), 0);
  EXPECT_EQ(holds(pieces("e\xCC\x81<cafe\xCC\x81>", "\xCC\x81", "")), 0);  // stands on '>'
  EXPECT_EQ(holds(pieces("", "<caf", "e\xCC\x81>")), 0);
  // A template piece that begins with a mark: the mark joins the user's letter.
  Ids joined = tokenizer.encode("\xC3\xA9", SpecialTokens::recognised).value();
  joined.push_back(id);
  EXPECT_EQ(pieces("", "e", "\xCC\x81<cafe\xCC\x81>"), joined);
}

TEST(TokenizerLoader, WithoutANormalizerTextStaysAsItIs) {
  Json root = golden();
  const std::string apart = "e\xCC\x81";
  const auto back = [&] {
    const Tokenizer tokenizer = load(root).value();
    return tokenizer.decode(tokenizer.encode(apart, SpecialTokens::plain_text).value(),
                            SkipSpecial::no);
  };
  EXPECT_EQ(back(), "\xC3\xA9");
  root.set("normalizer", Json());
  EXPECT_EQ(back(), apart);
}

TEST(TokenizerLoader, StripFlagsSwallowSpaces) {
  Json root = golden();
  const auto id = static_cast<int32_t>(load(root).value().vocab_size());
  root.find("added_tokens")->push_back(added(id, "<l>", "lstrip"));
  root.find("added_tokens")->push_back(added(id + 1, "<r>", "rstrip"));
  const Tokenizer tokenizer = load(root).value();
  const auto encode = [&](std::string_view text) {
    return tokenizer.encode(text, SpecialTokens::recognised).value();
  };
  const int32_t a = encode("a")[0], space = encode(" ")[0];
  EXPECT_EQ(encode("a \n\xE3\x80\x80<l> "), (Ids{a, id, space}));
  EXPECT_EQ(encode("a <r>\xC2\x85\t a"), (Ids{a, space, id + 1, a}));
  EXPECT_EQ(encode("<r> <l> <l>"), (Ids{id + 1, id, id}));
}

TEST(TokenizerLoader, IgnoreMergesTakesWholeWordsButNoSpecialOnes) {
  Json root = golden();
  auto id = static_cast<int32_t>(load(root).value().vocab_size());
  root.find("model")->set("ignore_merges", true);
  member(root, {"model", "vocab"}).set("\xC4\xA0zqzqz", id);      // " zqzqz", which no merge makes
  member(root, {"model", "vocab"}).set("\xC4\xA0qzqzq", id + 1);  // and one that is special
  root.find("added_tokens")->push_back(added(id + 1, "\xC4\xA0qzqzq", "special"));
  const Tokenizer tokenizer = load(root).value();
  EXPECT_EQ(tokenizer.encode("a zqzqz", SpecialTokens::plain_text).value().back(), id);
  EXPECT_GT(tokenizer.encode(" qzqzq", SpecialTokens::plain_text).value().size(), 1u);
}

TEST(TokenizerLoader, TokensOutsideTheAlphabetDecodeAsTheirText) {
  Json root = golden();
  const auto id = static_cast<int32_t>(load(root).value().vocab_size());
  root.find("added_tokens")->push_back(added(id, "a\xE6\x97\xA5"));
  root.find("added_tokens")->push_back(added(id + 1, "\xC3\xA9 \xC3\xA9"));  // a space is outside
  root.find("added_tokens")->push_back(added(id + 2, "<\xC3\xA9>"));         // inside: one byte, E9
  const Tokenizer tokenizer = load(root).value();
  EXPECT_EQ(tokenizer.decode(Ids{id, id + 1, id + 2}, SkipSpecial::no),
            "a\xE6\x97\xA5\xC3\xA9 \xC3\xA9<\xEF\xBF\xBD>");
}

TEST(TokenizerLoader, AMissingTokenizerIsNamed) {
  const TemporaryFolder folder;
  const auto missing = Tokenizer::load(folder.path());
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
  EXPECT_EQ(missing.error().message,
            concat("missing tokenizer: expected ", (folder / "tokenizer.json").string(),
                   ", found no such file; copy tokenizer.json from the model this checkpoint was "
                   "made of"));
  std::ofstream(folder / "tokenizer.json") << golden_text();
  std::ofstream(folder / "tokenizer_config.json") << R"({"eos_token":{"content":"<|im_end|>"}})";
  const auto found = Tokenizer::load(folder.path());
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found.value().eos_token_id(), found.value().token_to_id("<|im_end|>"));
}

}  // namespace
}  // namespace nibble
