// Tables of values that --speculative-config takes and refuses.
#include "cli/serving/speculation.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

TEST(SpeculativeConfig, TakesPromptLookup) {
  const Speculation plain = read_speculation(R"({"method": "ngram"})").value();
  EXPECT_EQ(plain.tokens, 4);
  EXPECT_EQ(plain.lookup.match_max, 4);
  EXPECT_EQ(plain.lookup.match_min, 2);
  const Speculation all = read_speculation(R"({"num_speculative_tokens":7,"prompt_lookup_max":9,)"
                                           R"("prompt_lookup_min":3,"method":"ngram"})")
                              .value();
  EXPECT_EQ(all.tokens, 7);
  EXPECT_EQ(all.lookup.match_max, 9);
  EXPECT_EQ(all.lookup.match_min, 3);
}

TEST(SpeculativeConfig, RefusesTheRestByName) {
  const struct {
    const char* json;
    const char* names;
  } cases[] = {
      {"ngram", "--speculative-config"},
      {"[]", "a JSON object such as"},
      {"{}", "a JSON object such as"},
      {R"({"moe_backend":"triton","method":"mtp"})", "\"mtp\" is refused: drafts of"},
      {R"({"method":"eagle"})", "method: expected \"ngram\""},
      {R"({"method":3})", "method: expected \"ngram\""},
      {R"({"method":"ngram","num_speculative_tokens":0})", "num_speculative_tokens: expected"},
      {R"({"method":"ngram","num_speculative_tokens":17})", "from 1 to 16"},
      {R"({"method":"ngram","num_speculative_tokens":2.0})", "found 2.0"},
      {R"({"method":"ngram","prompt_lookup_max":"4"})", "prompt_lookup_max: expected"},
      {R"({"method":"ngram","prompt_lookup_min":5})", "at most prompt_lookup_max, 4"},
      {R"({"method":"ngram","model":"x"})", "a key: expected method"},
  };
  for (const auto& bad : cases) {
    const auto read = read_speculation(bad.json);
    ASSERT_FALSE(read.ok()) << bad.json;
    EXPECT_NE(read.error().message.find(bad.names), std::string::npos) << read.error().message;
  }
}

}  // namespace
}  // namespace nibble
