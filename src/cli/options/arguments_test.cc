// The option table: flags, switches, environment, numbers with units, and the words of refusals.
#include <gtest/gtest.h>

#include "cli/verb.h"

namespace nibble {
namespace {

constexpr Option kOptions[] = {
    {"max-tokens", "N", "16", "most tokens"},
    {"quiet", "", "", "say less"},
    {"format", "NAME", "", "dialect", "output-format"},
    {"names", "NAME", "", "names", "-n", OptionForm::several},
    {"file", "FILE", "", "as often as it stands", "", OptionForm::repeated},
    {"settings", "JSON", "", "an object"},
    {"source", "SRC", "", "SRC", "", OptionForm::operand},
};
const Verb kProbe = {.name = "probe",
                     .positionals = "SRC [DST]",
                     .summary = "a verb for this test",
                     .options = kOptions,
                     .run = [](const Arguments&, Terminal&) -> Result<int> { return 0; }};

std::optional<std::string> no_environment(const std::string&) { return std::nullopt; }

Result<Arguments> parse(const std::vector<std::string>& words,
                        EnvironmentLookup environment = no_environment) {
  return parse_arguments(kProbe, words, environment);
}

TEST(Arguments, FlagsSwitchesAndDefaults) {
  const auto arguments = parse({"a", "--max-tokens=32K", "b", "--quiet"}).value();
  EXPECT_EQ(arguments.positional(0), "a");
  EXPECT_EQ(arguments.positional(1), "b");
  EXPECT_EQ(arguments.integer("max-tokens", 0, 1 << 20).value(), 32768);
  EXPECT_TRUE(arguments.enabled("quiet"));
  EXPECT_FALSE(parse({"a", "--quiet", "--no-quiet"}).value().enabled("quiet"));
  const auto defaults = parse({"a"}).value();
  EXPECT_EQ(defaults.integer("max-tokens", 0, 100).value(), 16);
  EXPECT_FALSE(defaults.given("max-tokens"));
  EXPECT_FALSE(defaults.text("format").has_value());
}

TEST(Arguments, EnvironmentStandsBetweenFlagAndDefault) {
  const EnvironmentLookup environment = [](const std::string& name) -> std::optional<std::string> {
    if (name == "NIBBLE_MAX_TOKENS") return "25.6k";
    if (name == "NIBBLE_QUIET") return "ON";
    return std::nullopt;
  };
  const auto arguments = parse({"a"}, environment).value();
  EXPECT_EQ(arguments.integer("max-tokens", 0, 1 << 20).value(), 25600);
  EXPECT_TRUE(arguments.enabled("quiet"));
  EXPECT_EQ(
      parse({"a", "--max-tokens", "7"}, environment).value().integer("max-tokens", 0, 9).value(),
      7);
}

TEST(Arguments, RepeatedOptionsKeepAllTheirValues) {
  EXPECT_EQ(parse({"--file", "x,1", "a", "--file=y z", "b"}).value().text("file"), "x,1\ny z");
  EXPECT_EQ(parse({"a", "--file", "x"}).value().text("file"), "x");
  EXPECT_EQ(parse({"a", "--file", "x", "b"}).value().positional(1), "b");
  const EnvironmentLookup environment = [](const std::string& name) -> std::optional<std::string> {
    return name == "NIBBLE_FILE" ? std::optional<std::string>("e") : std::nullopt;
  };
  EXPECT_EQ(parse({"a"}, environment).value().text("file"), "e");
  EXPECT_EQ(parse({"a", "--file", "x", "--file", "y"}, environment).value().text("file"), "x\ny");
}

TEST(Arguments, AnotherNameMeansTheSame) {
  EXPECT_EQ(parse({"a", "--output-format=json"}).value().text("format"), "json");
  EXPECT_EQ(parse({"a", "--output-format", "json"}).value().text("format"), "json");
  EXPECT_FALSE(parse({"a", "--", "--output-format"}).value().given("format"));
}

TEST(Arguments, ASwitchMayBeFollowedByItsValue) {
  EXPECT_FALSE(parse({"a", "--quiet", "false"}).value().enabled("quiet"));
  EXPECT_TRUE(parse({"a", "--quiet", "True", "b"}).value().enabled("quiet"));
  EXPECT_FALSE(parse({"a", "--quiet=false"}).value().enabled("quiet"));
  EXPECT_EQ(parse({"--quiet", "a"}).value().positional(0), "a");
}

TEST(Arguments, SeveralWordsGoUpToTheNextOption) {
  EXPECT_EQ(parse({"a", "--names", "x", "y,z", "--quiet", "b"}).value().text("names"), "x,y,z");
  EXPECT_EQ(parse({"a", "-n", "x", "-5"}).value().text("names"), "x,-5");
  EXPECT_EQ(parse({"--names=x", "a"}).value().positional(0), "a");
}

TEST(Arguments, NamesMayHaveUnderscoresAndTheOperandAName) {
  EXPECT_EQ(parse({"a", "--max_tokens", "3"}).value().text("max-tokens"), "3");
  EXPECT_EQ(parse({"--source", "a"}).value().positional(0), "a");
  EXPECT_EQ(parse({"a", "--settings.k_1", "x_y"}).value().text("settings"), R"({"k_1":"x_y"})");
  EXPECT_EQ(parse({"a", "--settings", R"({"a":1})", "--settings.b=2"}).value().text("settings"),
            R"({"a":1,"b":2})");
}

TEST(Arguments, ValuesAreCheckedBesideTheWords) {
  Verb verb = kProbe;
  verb.check = [](const Arguments& arguments) -> Result<void> {
    return arguments.integer("max-tokens", 1, 20).ok()
               ? Result<void>()
               : Error{ErrorCode::invalid_argument, "too many"};
  };
  const std::vector<std::string> words = {"--zebra", "--max-tokens", "21"};
  EXPECT_EQ(parse_arguments(verb, words, no_environment).error().message,
            "unknown option --zebra; `nibble probe --help` lists the options\ntoo many");
}

TEST(Arguments, TextAfterDashesIsPositional) {
  EXPECT_EQ(parse({"--", "--quiet"}).value().positional(0), "--quiet");
}

TEST(Arguments, RefusesWithAdvice) {
  struct Case {
    std::vector<std::string> words;
    const char* message;
  };
  const Case cases[] = {
      {{"a", "--max-token", "3"}, "unknown option --max-token; did you mean --max-tokens?"},
      {{"a", "--zebra"}, "unknown option --zebra; `nibble probe --help` lists the options"},
      {{"a", "--format"}, "--format: expected a value NAME, found the end of the command"},
      {{}, "`nibble probe` needs SRC [DST] and got nothing; see `nibble probe --help`"},
      {{"a", "b", "c"},
       "`nibble probe` takes SRC [DST] and got 3 words; see `nibble probe --help`"},
      {{"a", "--quiet=perhaps"},
       "--quiet: expected 1, on, yes, true or 0, off, no, false, found \"perhaps\""},
      {{"a", "--no-format"},
       "unknown option --no-format; --format takes a value NAME: it cannot be switched off"},
      {{"a", "--format", "--quiet"},
       "--format: expected a value NAME, found the option --quiet; write --format=VALUE if it "
       "begins with a dash"},
      {{"a", "--formatting", "x"},
       "unknown option --formatting; `nibble probe --help` lists the options"},
      {{"a", "-z"},
       "unknown option -z; `nibble probe --help` lists the options; put -- before text that starts "
       "with a dash"},
      {{"a", "--format.x", "1"},
       "unknown option --format.x; --format takes no JSON object, so it has no members"},
      {{"--names", "a", "b"},
       "`nibble probe` needs SRC [DST] and got nothing; SRC [DST] stands before --names, which "
       "takes "
       "all words up to the next option"},
      {{"a", "b", "c", "--zebra", "--quiet=perhaps", "--format"},  // all at once
       "unknown option --zebra; `nibble probe --help` lists the options\n--quiet: expected 1, on, "
       "yes, true or 0, off, no, false, found \"perhaps\"\n--format: expected a value NAME, found "
       "the end of the command"},
  };
  for (const auto& bad : cases) {
    const auto result = parse(bad.words);
    ASSERT_FALSE(result.ok()) << bad.message;
    EXPECT_EQ(result.error().message, bad.message);
  }
}

TEST(Arguments, RefusesNumbersOutsideTheirRange) {
  for (const char* text : {"0", "65", "1.5", "x", "", "1e99", "nan", "3 4"}) {
    const auto arguments = parse({"a", concat("--max-tokens=", text)}).value();
    const auto number = arguments.integer("max-tokens", 1, 64);
    ASSERT_FALSE(number.ok()) << text;
    EXPECT_EQ(number.error().message,
              concat("--max-tokens: expected a whole number from 1 to 64, found \"", text, "\""));
  }
  const auto arguments = parse({"a", "--format=xml"}).value();
  EXPECT_EQ(arguments.choice("format", {"json", "text"}).error().message,
            "--format: expected one of json, text, found \"xml\"");
}

TEST(Arguments, HelpShowsEveryOptionAndDefault) {
  const std::string help = help_text(kProbe);
  for (const char* piece :
       {"nibble probe SRC [DST] [options]", "--max-tokens N", "[16]", "--quiet"})
    EXPECT_NE(help.find(piece), std::string::npos) << piece;
}

}  // namespace
}  // namespace nibble
