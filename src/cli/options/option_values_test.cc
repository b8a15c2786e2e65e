// The kinds of placeholders as a shell sees them, and the search of --help=KEYWORD.
#include "cli/options/option_values.h"

#include <gtest/gtest.h>

#include "cli/options/option_search.h"

namespace nibble {
namespace {

using Words = std::vector<std::string_view>;

TEST(OptionValues, PlaceholdersHaveKinds) {
  EXPECT_EQ(value_kind(""), ValueKind::none);
  EXPECT_EQ(value_kind("N"), ValueKind::other);
  EXPECT_EQ(value_kind("exact|fast"), ValueKind::words);
  EXPECT_EQ(value_kind("N|auto[:SEQS]"), ValueKind::words);
  EXPECT_EQ(value_kind("FILE"), ValueKind::files);
  EXPECT_EQ(value_kind("NAME|FILE"), ValueKind::files);
  EXPECT_EQ(value_kind("DIR"), ValueKind::folders);
  EXPECT_EQ(value_kind("DIR|TEMPLATE.jinja"), ValueKind::files);
  EXPECT_EQ(placeholder_words("exact|fast"), (Words{"exact", "fast"}));
  EXPECT_EQ(placeholder_words("N|auto[:SEQS]"), Words{"auto"});
  EXPECT_EQ(placeholder_words("N"), Words{});
}

TEST(OptionValues, PositionalsAreTakenApart) {
  EXPECT_EQ(positional_words(kQuantizeVerb), (Words{"SRC", "DST"}));
  EXPECT_EQ(positional_words(kRunVerb), (Words{"DIR", "PROMPT"}));
  EXPECT_EQ(positional_words(kDoctorVerb), Words{"FILE"});
  EXPECT_EQ(positional_words(kLsVerb), Words{});
}

TEST(OptionValues, ListsShowTheFirstClause) {
  EXPECT_EQ(short_help("port; 0 picks a free one"), "port");
  const std::string_view cut = short_help(
      "a help text of more than seventy-two letters that has no clause at all and is cut at a "
      "word");
  EXPECT_EQ(cut, "a help text of more than seventy-two letters that has no clause at all");
}

/// `serve` has over a hundred options: a slip in the placeholder of one is seen here.
TEST(OptionValues, WordsOfPlaceholdersAreTaken) {
  for (const Verb* verb : all_verbs()) {
    if (verb == &kPlanVerb) continue;  // refuses a few with the reason, since it only computes
    for (const Option& option : verb->options)
      for (const std::string_view word : placeholder_words(option.value)) {
        if (option.name == "kv-scales" && word == "checkpoint") continue;  // with fp8 pages alone
        const std::vector<std::string> words = {"--print-config",
                                                concat("--", option.name, "=", word)};
        const auto arguments = parse_arguments(
            *verb, words, [](const std::string&) -> std::optional<std::string> { return {}; });
        EXPECT_TRUE(arguments.ok()) << verb->name << ": " << arguments.error().message;
      }
  }
}

TEST(OptionSearch, LooksAtNamesOtherNamesPlaceholdersAndHelp) {
  const auto has = [](std::string_view keyword, std::string_view option) {
    const auto rows = search_options(kServeVerb, keyword);
    return rows.ok() && rows.value().find(concat("--", option)) != std::string::npos;
  };
  EXPECT_TRUE(has("MAX_MODEL", "max-model-len"));
  EXPECT_TRUE(has("max-num-queued-reqs", "max-queued-requests"));
  EXPECT_TRUE(has("seconds", "sleep-idle"));
  EXPECT_TRUE(has("Unix socket", "uds"));
  EXPECT_TRUE(has("print-config", "print-config"));
  EXPECT_FALSE(has("max-model", "port"));
  EXPECT_EQ(search_options(kServeVerb, "zebra").error().message,
            "no option has \"zebra\" in its name or help; `nibble serve --help` lists them");
  EXPECT_FALSE(search_options(kServeVerb, "").ok());
  EXPECT_NE(search_all_options("max-model-len").value().find("nibble serve:\n"), std::string::npos);
  EXPECT_FALSE(search_all_options("zebra").ok());
}

}  // namespace
}  // namespace nibble
