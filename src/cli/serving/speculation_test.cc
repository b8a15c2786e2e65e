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

TEST(SpeculativeConfig, TakesTheModelsOwnLayerByAnyOfItsNames) {
  for (const char* name : {"mtp", "qwen3_5_mtp", "qwen3_next_mtp"}) {
    const Speculation plain = read_speculation(concat(R"({"method":")", name, R"("})")).value();
    EXPECT_EQ(plain.method, DraftMethod::mtp);
    EXPECT_EQ(plain.tokens, 3);
  }
  const auto five = read_speculation(R"({"num_speculative_tokens":5,"method":"mtp"})").value();
  EXPECT_EQ(five.tokens, 5);
  EXPECT_EQ(five.repeat_match, 12);
  const char* short_repeats = R"({"prompt_lookup_min":0,"method":"mtp"})";
  EXPECT_EQ(read_speculation(short_repeats).value().repeat_match, 0);
  const char* published = R"({"method":"mtp","num_speculative_tokens":2,"moe_backend":"triton"})";
  EXPECT_EQ(read_speculation(published).value().tokens, 2);
  EXPECT_EQ(read_speculation(R"({"method":"ngram"})").value().method, DraftMethod::ngram);
  const char* forced = R"({"method":"mtp","synthetic_acceptance":[0.93, 0.81, 0]})";
  EXPECT_EQ(read_speculation(forced).value().synthetic_acceptance,
            (std::vector<double>{0.93, 0.81, 0.0}));
}

TEST(SpeculativeConfig, RefusesTheRestByName) {
  const struct {
    const char* json;
    const char* names;
  } cases[] = {
      {"ngram", "--speculative-config"},
      {"[]", "a JSON object such as"},
      {"{}", "a JSON object such as"},
      {R"({"draft_sample_method":"greedy","method":"mtp"})",
       "prompt_lookup_min or synthetic_acceptance, found draft_sample_method"},
      {R"({"method":"mtp","prompt_lookup_min":65})", "from 0 to 64"},
      {R"({"method":"mtp","prompt_lookup_min":-1})", "from 0 to 64"},
      {R"({"method":"ngram","prompt_lookup_min":0})", "from 1 to 64"},
      {R"({"moe_backend":3,"method":"mtp"})", "found moe_backend"},
      {R"({"moe_backend":"triton","method":"ngram"})", "found moe_backend"},
      {R"({"method":"mtp","prompt_lookup_max":4})", "found prompt_lookup_max"},
      {R"({"method":"mtp","num_speculative_tokens":6})", "from 1 to 5"},
      {R"({"method":"some_mtp"})", "method: expected \"mtp\""},
      {R"({"method":"eagle"})", "method: expected \"mtp\""},
      {R"({"method":3})", "method: expected \"mtp\""},
      {R"({"method":"ngram","num_speculative_tokens":0})", "num_speculative_tokens: expected"},
      {R"({"method":"ngram","num_speculative_tokens":17})", "from 1 to 16"},
      {R"({"method":"ngram","num_speculative_tokens":2.0})", "found 2.0"},
      {R"({"method":"ngram","prompt_lookup_max":"4"})", "prompt_lookup_max: expected"},
      {R"({"method":"ngram","prompt_lookup_min":5})", "at most prompt_lookup_max, 4"},
      {R"({"method":"ngram","model":"x"})", "a key: expected method"},
      {R"({"method":"mtp","synthetic_acceptance":[0.5,0.6]})", "none above the one before it"},
      {R"({"method":"mtp","synthetic_acceptance":[1.1]})", "synthetic_acceptance: expected"},
      {R"({"method":"mtp","synthetic_acceptance":[]})", "found []"},
      {R"({"method":"mtp","synthetic_acceptance":0.9})", "found 0.9"},
  };
  for (const auto& bad : cases) {
    const auto read = read_speculation(bad.json);
    ASSERT_FALSE(read.ok()) << bad.json;
    EXPECT_NE(read.error().message.find(bad.names), std::string::npos) << read.error().message;
  }
}

/// A plan with pages for so many requests of `context` tokens.
MemoryPlan plan(int32_t context, double requests) {
  MemoryPlan made{.sequences_max = 16, .context_max = context};
  made.pools.pages = static_cast<int32_t>(requests * context / kPageTokens);
  return made;
}

TEST(DraftChoice, CountsWhatFewRequestsOfFullLengthLose) {
  const auto lost = [](double without, double with) {
    return lost_to_drafts(plan(65536, without), plan(65536, with));
  };
  EXPECT_EQ(lost(1.3, 1.1), "");
  EXPECT_EQ(lost(3.0, 3.0), "");
  EXPECT_EQ(lost(2.1, 1.9), "pages would hold 1 request of 65536 tokens instead of 2");
  EXPECT_EQ(lost(4.2, 3.9), "pages would hold 3 requests of 65536 tokens instead of 4");
  EXPECT_EQ(lost(19.5, 17.6), "");  // where there is room for many, one is no reason
}

TEST(DraftChoice, CountsAShorterContext) {
  EXPECT_EQ(lost_to_drafts(plan(65536, 1.0), plan(60032, 1.0)),
            "the longest request would have 60032 tokens instead of 65536");
}

}  // namespace
}  // namespace nibble
