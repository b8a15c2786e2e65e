// Key files and what is counted for a key; the server's side is in tenants_test.cc.
#include "server/clients/keys.h"

#include <gtest/gtest.h>

#include "base/sha256.h"
#include "server/clients/permissions.h"
#include "server/clients/quotas.h"

namespace nibble {
namespace {

std::string line(std::string_view name, std::string_view key, std::string_view more = "") {
  return concat(R"({"name": ")", name, R"(", "sha256": ")", sha256_hex(key), "\"", more, "}\n");
}

std::string refusal(std::string_view text) {
  Keys keys;
  FilterStore filters({});
  const auto read = keys.add_lines(text, "keys", filters);
  return read.ok() ? "" : read.error().message;
}

TEST(Keys, FindsWhoseHashStandsInTheFile) {
  Keys keys;
  const std::string text = concat(
      "# people\n\n", line("alice", "sesame"),
      line("bob", "open", R"(, "profiles": ["thinking-coding"], "weight": 2.5, "max_concurrent": 3,
           "requests_per_minute": 60, "tokens_per_minute": 9000, "priority": [-5, 10],
           "cache": "shared")"));
  std::string flat = text;
  for (size_t at; (at = flat.find(",\n")) != std::string::npos;) flat.erase(at + 1, 1);
  FilterStore filters({});
  ASSERT_TRUE(keys.add_lines(flat, "keys", filters).ok()) << refusal(flat);
  EXPECT_EQ(keys.size(), 2U);
  EXPECT_EQ(keys.find("sesame")->name, "alice");
  EXPECT_EQ(keys.find("sesame")->cache, CacheSharing::salted);
  const auto bob = keys.find("open");
  ASSERT_NE(bob, nullptr);
  EXPECT_EQ(bob->profiles, std::vector<std::string>{"thinking-coding"});
  EXPECT_EQ(bob->weight, 2.5);
  EXPECT_EQ(bob->concurrent_max, 3);
  EXPECT_EQ(bob->requests_per_minute, 60);
  EXPECT_EQ(bob->tokens_per_minute, 9000);
  EXPECT_EQ(bob->priority_least, -5);
  EXPECT_EQ(bob->priority_most, 10);
  EXPECT_EQ(bob->cache, CacheSharing::shared);
  for (const char* other : {"", "sesam", "sesamee", "SESAME", "alice"})
    EXPECT_EQ(keys.find(other), nullptr) << other;
  EXPECT_EQ(keys.find(sha256_hex("sesame")), nullptr);  // the hash is not the key
}

TEST(Keys, SaysWhichLineIsWrong) {
  EXPECT_EQ(refusal(""), R"(keys: no key: expected lines of {"name": "NAME", "sha256": "HEX"})");
  EXPECT_EQ(refusal("# none\n"), refusal(""));
  EXPECT_NE(refusal(concat(line("a", "x"), "nonsense\n")).find("keys line 2: "), std::string::npos);
  EXPECT_EQ(refusal("[]"), "keys line 1: the line: expected a JSON object, found array");
  EXPECT_EQ(refusal(R"({"name": "a"})"), "keys line 1: no \"sha256\"");
  EXPECT_EQ(refusal(concat(line("a", "x"), line("a", "y"))),
            "keys line 2: a: expected each name and each key once, found the same as a before it");
  EXPECT_EQ(refusal(concat(line("a", "x"), line("b", "x"))),
            "keys line 2: b: expected each name and each key once, found the same as a before it");
  EXPECT_NE(refusal(R"({"name": "a b", "sha256": ""})").find("\"name\": expected 1 to 64"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"name": "a", "sha256": "abc"})").find("64 hex digits"), std::string::npos);
  EXPECT_EQ(
      refusal(line("a", "x", R"(, "filters": ["words"])")),
      "keys line 1: a filter: expected regex:FILE, exec:PROGRAM or http:URL, found \"words\"");
  EXPECT_NE(refusal(line("a", "x", R"(, "filters": "regex:f")")).find("\"filters\": expected"),
            std::string::npos);
  EXPECT_NE(refusal(line("a", "x", R"(, "wieght": 2)")).find("unknown member \"wieght\""),
            std::string::npos);
}

TEST(Keys, HoldsNumbersToTheirBounds) {
  struct Case {
    const char* member;
    bool good;
  };
  const Case cases[] = {
      {R"("weight": 0.01)", true},
      {R"("weight": 0.009)", false},
      {R"("weight": 100)", true},
      {R"("weight": 101)", false},
      {R"("max_concurrent": 1)", true},
      {R"("max_concurrent": 0)", false},
      {R"("max_concurrent": 1.5)", false},
      {R"("requests_per_minute": 1)", true},
      {R"("requests_per_minute": 0)", false},
      {R"("tokens_per_minute": -1)", false},
      {R"("priority": [-1000, 1000])", true},
      {R"("priority": [-1001, 0])", false},
      {R"("priority": [1, 0])", false},
      {R"("priority": 5)", false},
      {R"("cache": "none")", false},
      {R"("profiles": [])", false},
      {R"("profiles": "a")", false},
  };
  for (const Case& c : cases)
    EXPECT_EQ(refusal(line("a", "x", concat(", ", c.member))).empty(), c.good) << c.member;
}

class QuotasTest : public ::testing::Test {
 protected:
  Quotas::Time at(double seconds) const {
    return start_ + std::chrono::microseconds(static_cast<int64_t>(seconds * 1e6));
  }
  std::string header(const KeyRules& key, std::string_view name, double seconds) {
    for (const HttpHeader& header : quotas_.headers(key, at(seconds)))
      if (header.name == concat("x-ratelimit-", name)) return header.value;
    return "";
  }
  Quotas::Time start_{std::chrono::hours(1000)};  // of a clock that only the tests move
  Quotas quotas_;
};

TEST_F(QuotasTest, OneTooManyAtOnceMayTryAgainInASecond) {
  const KeyRules key{.name = "a", .concurrent_max = 2};
  EXPECT_FALSE(quotas_.begin(key, at(0)));
  EXPECT_FALSE(quotas_.begin(key, at(0)));
  const auto refused = quotas_.begin(key, at(0));
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 429);
  EXPECT_EQ(refused->retry_after_s, 1);
}

TEST_F(QuotasTest, CountsRequestsOfTheLastMinute) {
  const KeyRules key{.name = "a", .requests_per_minute = 60};
  for (int i = 0; i < 60; ++i) EXPECT_FALSE(quotas_.begin(key, at(0))) << i;
  const auto refused = quotas_.begin(key, at(0));
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 429);
  EXPECT_EQ(refused->code, "rate_limit_exceeded");
  EXPECT_EQ(refused->retry_after_s, 1);
  EXPECT_EQ(header(key, "limit-requests", 0), "60");
  EXPECT_EQ(header(key, "remaining-requests", 0), "0");
  EXPECT_EQ(header(key, "reset-requests", 0), "1m0s");
  EXPECT_EQ(header(key, "limit-tokens", 0), "");
  EXPECT_TRUE(quotas_.begin(key, at(0.99)));
  EXPECT_FALSE(quotas_.begin(key, at(1.01)));
  EXPECT_TRUE(quotas_.begin(key, at(1.02)));
  EXPECT_EQ(header(key, "remaining-requests", 31.02), "30");
  const KeyRules other{.name = "b", .requests_per_minute = 1};
  EXPECT_FALSE(quotas_.begin(other, at(1.02)));
}

/// The wait is in whole seconds: never too early, and never a second more than that takes.
TEST_F(QuotasTest, SaysTheFirstWholeSecondInWhichARequestFits) {
  struct Case {
    int32_t per_minute;
    int seconds;
  };
  for (const Case& c : {Case{1, 60}, {7, 9}, {40, 2}, {45, 2}, {60, 1}, {59, 2}, {90, 1}}) {
    const KeyRules key{.name = concat("a", c.per_minute), .requests_per_minute = c.per_minute};
    for (int i = 0; i < c.per_minute; ++i) EXPECT_FALSE(quotas_.begin(key, at(0))) << i;
    const auto refused = quotas_.begin(key, at(0));
    ASSERT_TRUE(refused) << c.per_minute;
    EXPECT_EQ(refused->retry_after_s, c.seconds) << c.per_minute;
    EXPECT_TRUE(quotas_.begin(key, at(c.seconds - 1))) << c.per_minute;
    EXPECT_FALSE(quotas_.begin(key, at(c.seconds))) << c.per_minute;
  }
}

TEST_F(QuotasTest, CountsRequestsAtOnce) {
  const KeyRules key{.name = "a", .concurrent_max = 2};
  EXPECT_FALSE(quotas_.begin(key, at(0)));
  EXPECT_FALSE(quotas_.begin(key, at(0)));
  EXPECT_TRUE(quotas_.begin(key, at(100)));
  quotas_.release(key);
  EXPECT_FALSE(quotas_.begin(key, at(100)));
  EXPECT_TRUE(quotas_.headers(key, at(100)).empty());
}

/// A key that had no limit when its requests began may have one, from its file, before they end.
TEST_F(QuotasTest, CountsRequestsAtOnceAlsoWhileTheyAreNotLimited) {
  const KeyRules open{.name = "a"};
  const KeyRules limited{.name = "a", .concurrent_max = 2};
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(quotas_.begin(open, at(0)));
  EXPECT_TRUE(quotas_.begin(limited, at(0)));
  quotas_.release(limited);
  EXPECT_TRUE(quotas_.begin(limited, at(0)));
  quotas_.release(limited);
  EXPECT_FALSE(quotas_.begin(limited, at(0)));
  EXPECT_TRUE(quotas_.begin(limited, at(0)));
  for (int i = 0; i < 2; ++i) quotas_.release(open);
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(quotas_.begin(limited, at(0)));
  EXPECT_TRUE(quotas_.begin(limited, at(0)));
}

TEST_F(QuotasTest, IdleTimePaysForNothingThatComesLater) {
  const KeyRules key{.name = "a", .tokens_per_minute = 600};
  EXPECT_FALSE(quotas_.take_tokens(key, 10, at(0)));  // forgotten after one second
  quotas_.charge_tokens(key, 600, at(30));
  const auto refused = quotas_.take_tokens(key, 245, at(30));
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->retry_after_s, 25);  // 24.5 s
  EXPECT_TRUE(quotas_.take_tokens(key, 245, at(54.4)));
  EXPECT_FALSE(quotas_.take_tokens(key, 245, at(54.6)));
}

TEST_F(QuotasTest, AnswersMayLeaveADebtOfTokens) {
  const KeyRules key{.name = "a", .tokens_per_minute = 600};
  EXPECT_FALSE(quotas_.take_tokens(key, 500, at(0)));
  quotas_.charge_tokens(key, 400, at(0));  // 300 too many
  EXPECT_EQ(header(key, "remaining-tokens", 0), "0");
  const auto refused = quotas_.take_tokens(key, 10, at(0));
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->retry_after_s, 31);
  EXPECT_TRUE(quotas_.take_tokens(key, 10, at(30.9)));
  EXPECT_FALSE(quotas_.take_tokens(key, 10, at(31.1)));
  EXPECT_TRUE(quotas_.take_tokens(key, 5000, at(80)));  // needs all of a minute
  EXPECT_FALSE(quotas_.take_tokens(key, 5000, at(200)));
}

TEST(ResetText, IsAsOpenAiWritesIt) {
  EXPECT_EQ(reset_text(0.0), "0s");
  EXPECT_EQ(reset_text(0.01), "0.1s");
  EXPECT_EQ(reset_text(1.5), "1.5s");
  EXPECT_EQ(reset_text(360.0), "6m0s");
  EXPECT_EQ(reset_text(61.2), "1m1.2s");
}

TEST(Permissions, HoldPrioritiesToTheKeysRange) {
  const KeyRules key{.name = "a", .priority_least = 5, .priority_most = 10};
  for (const auto& [asked, given] : {std::pair(0, 5), {5, 5}, {10, 10}, {4, -1}, {11, -1}}) {
    GenerationRequest request;
    request.priority = asked;
    const auto refused = forbidden(key, request);
    ASSERT_EQ(refused.has_value(), given < 0) << asked;
    if (refused) {
      EXPECT_EQ(refused->status, 403);
      EXPECT_EQ(refused->param, "priority");
    } else {
      EXPECT_EQ(request.priority, given);
    }
  }
}

}  // namespace
}  // namespace nibble
