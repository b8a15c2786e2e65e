// The help of `nibble serve` is whole: each option in one group, the short form within a screen.
#include "cli/serving/serve_help.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace nibble {
namespace {

TEST(ServeHelp, EveryOptionIsInOneGroup) {
  std::map<std::string_view, int> seen;
  for (const OptionGroup& group : serve_option_groups())
    for (const std::string_view name : group.names) ++seen[name];
  for (const Option& option : kServeVerb.options) {
    EXPECT_EQ(seen[option.name], 1) << option.name;
    seen.erase(option.name);
  }
  EXPECT_TRUE(seen.empty()) << seen.begin()->first << " is no option";
}

TEST(ServeHelp, TheMostUsedComeFirst) {
  ASSERT_EQ(most_used_serve_options().size(), 12U);
  const std::string some = serve_help(HelpLength::most_used), all = serve_help(HelpLength::all);
  size_t at = 0;
  for (const std::string_view name : most_used_serve_options()) {
    const size_t row = some.find(concat("\n  --", name), at);
    ASSERT_NE(row, std::string::npos) << name;
    at = row;
  }
  EXPECT_LE(std::ranges::count(some, '\n'), 51);
  EXPECT_NE(some.find("--help=all"), std::string::npos);
  for (const Option& option : kServeVerb.options) {
    EXPECT_NE(some.find(concat("--", option.name)), std::string::npos) << option.name;
    EXPECT_NE(all.find(concat("\n  --", option.name, option.value.empty() ? "" : " ")),
              std::string::npos)
        << option.name;
    EXPECT_NE(all.find(option.help), std::string::npos) << option.name;
  }
  for (const std::string* text : {&some, &all})
    EXPECT_NE(text->find("--help=vllm"), std::string::npos);
}

}  // namespace
}  // namespace nibble
