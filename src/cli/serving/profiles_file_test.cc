// Tables of what a file of profiles may say, and of the errors for what it may not.
#include "cli/serving/profiles_file.h"

#include <gtest/gtest.h>

namespace nibble {
namespace {

TEST(ProfilesFile, AddsToTheBuiltInOnes) {
  const Profiles profiles = parse_profiles(R"(
default = "coder"
[[profile]]
name = "coder"
base = "thinking-coding"
top_k = 30
temperature = 1
thinking_budget = 4096
answer_reserve = 512
max_tokens = 8192
priority = -5
template_kwargs = { preserve_thinking = true, words = ["a", 1, 2.5] }
filters = ["regex:words", "http://judge/"]
locked = ["temperature", "thinking"]
[[profile]]
name = "brief"
base = "coder"
thinking = false
template_kwargs = { style = "brief" }
locked = []
[[profile]]
name = "instruct-general"
temperature = 0.3
)",
                                           "p.toml")
                                .value();
  const Profile& coder = *profiles.find("coder");
  EXPECT_EQ(profiles.standing(), &coder);
  EXPECT_EQ(coder.numbers.dump(),
            R"({"temperature":1.0,"top_p":0.95,"top_k":30,"min_p":0.0,"presence_penalty":0.0,)"
            R"("repetition_penalty":1.0,"answer_reserve":512,"max_tokens":8192,"priority":-5,)"
            R"("thinking_budget":4096})");
  EXPECT_EQ(coder.thinking, true);
  EXPECT_EQ(coder.template_kwargs.dump(), R"({"preserve_thinking":true,"words":["a",1,2.5]})");
  EXPECT_TRUE(coder.locks("thinking") && coder.locks("temperature") && !coder.locks("top_p"));
  EXPECT_EQ(coder.filters, (std::vector<std::string>{"regex:words", "http://judge/"}));
  const Profile& brief = *profiles.find("brief");
  EXPECT_EQ(brief.thinking, false);
  EXPECT_EQ(brief.max_tokens(), 8192);
  EXPECT_EQ(brief.template_kwargs.find("preserve_thinking")->dump(), "true");
  EXPECT_FALSE(brief.locks("temperature"));
  EXPECT_EQ(brief.filters, coder.filters);
  EXPECT_EQ(profiles.find("instruct-general")->numbers.dump(), R"({"temperature":0.3})");
  EXPECT_EQ(profiles.all().size(), Profiles().all().size() + 2);
  EXPECT_EQ(parse_profiles("", "p.toml").value().all().size(), Profiles().all().size());
}

TEST(ProfilesFile, SaysWhatIsWrongAndWhere) {
  const struct {
    std::string text;
    const char* message;
  } cases[] = {
      {"x = ", "p.toml line 1: expected TOML, found "},
      {"profiles = 1", "p.toml line 1: unknown key \"profiles\"; did you mean profile?"},
      {"[profile]\nname = \"a\"",
       "p.toml line 1: profile: expected a list of tables, found a table; write [[profile]]"},
      {"profile = [1]", "line 1: profile: expected a table, found a whole number"},
      {"[[profile]]\ntop_k = 1", "p.toml line 1: a profile: expected a name, found none"},
      {"[[profile]]\nname = 1", "line 2: name: expected a string, found a whole number"},
      {"[[profile]]\nname = \"a:b\"", "line 2: name: expected 1 to 64 letters, digits"},
      {"[[profile]]\nname = \"\"", "found \"\""},
      {"[[profile]]\nname = \"a\"\n[[profile]]\nname = \"a\"",
       "p.toml line 4: name: expected each name once, found \"a\" twice"},
      {"[[profile]]\nname = \"a\"\nbase = \"b\"",
       "p.toml line 3: base: expected a built-in profile or one further up, found \"b\""},
      {"[[profile]]\nname = \"a\"\ntemprature = 1",
       "p.toml line 3: unknown key \"temprature\"; did you mean temperature?"},
      {"[[profile]]\nname = \"a\"\nzzz = 1", "unknown key \"zzz\"; the keys are name, base,"},
      {"[[profile]]\nname = \"a\"\ntemperature = \"hot\"",
       "line 3: temperature: expected a number from 0 to 100, found a string"},
      {"[[profile]]\nname = \"a\"\ntemperature = nan",
       "expected a number from 0 to 100, found nan"},
      {"[[profile]]\nname = \"a\"\ntop_p = 1.5", "expected a number from 0 to 1, found 1.5"},
      {"[[profile]]\nname = \"a\"\ntop_k = 1.5", "top_k: expected a whole number from -1"},
      {"[[profile]]\nname = \"a\"\nmax_tokens = 0", "expected a whole number from 1"},
      {"[[profile]]\nname = \"a\"\npriority = 1001", "from -1000 to 1000, found 1001"},
      {"[[profile]]\nname = \"a\"\nthinking = 1", "thinking: expected true or false"},
      {"[[profile]]\nname = \"a\"\ntemplate_kwargs = 1", "template_kwargs: expected a table"},
      {"[[profile]]\nname = \"a\"\ntemplate_kwargs = { d = 2020-01-01 }", "found a date or time"},
      {"[[profile]]\nname = \"a\"\nfilters = \"regex:f\"",
       "line 3: filters: expected a list of strings, found a string"},
      {"[[profile]]\nname = \"a\"\nlocked = \"top_p\"", "locked: expected a list of keys"},
      {"[[profile]]\nname = \"a\"\nlocked = [\"top_p\"]",
       "p.toml line 3: locked: expected keys that this profile sets, found \"top_p\""},
      {"default = \"none\"", "line 1: default: expected the name of a profile, found \"none\""},
  };
  for (const auto& row : cases) {
    const auto profiles = parse_profiles(row.text, "p.toml");
    ASSERT_FALSE(profiles.ok()) << row.text;
    EXPECT_EQ(profiles.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(profiles.error().message.find(row.message), std::string::npos)
        << profiles.error().message;
    EXPECT_EQ(profiles.error().message.find('\n'), std::string::npos);
  }
  std::string many;
  for (int i = 0; i < 65; ++i) many += concat("[[profile]]\nname = \"p", i, "\"\n");
  EXPECT_FALSE(parse_profiles(many, "p.toml").ok());
}

}  // namespace
}  // namespace nibble
