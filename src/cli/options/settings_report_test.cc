// --print-config is a configuration file: it is read back with the same values, for every verb.
#include "cli/options/settings_report.h"

#include <gtest/gtest.h>

#include "cli/options/config_file.h"

namespace nibble {
namespace {

std::optional<std::string> no_environment(const std::string&) { return std::nullopt; }

Result<std::string> no_secret(const std::string& path) {
  return Error{ErrorCode::not_found, concat("no file ", path)};
}

TEST(SettingsReport, IsAConfigurationFileWithTheSameValues) {
  const std::vector<std::string> words = {"DIR",
                                          "--port=7",
                                          "--no-web",
                                          "--max-model-len=32K",
                                          "--served-model-name=a,b",
                                          "--gpu-memory-utilization=0.5",
                                          "--speculative-config.method=ngram",
                                          "--log-format=json",
                                          "--uds=a \"b\"\\\x7f"};
  const auto first = parse_arguments(kServeVerb, words, no_environment).value();
  const std::string report = settings_report(kServeVerb, first);
  EXPECT_NE(report.find("\nport = 7  # --port\n"), std::string::npos) << report;
  EXPECT_NE(report.find("\nheader-timeout = 10  # default\n"), std::string::npos) << report;
  EXPECT_NE(report.find("\n# ssl-keyfile is not set\n"), std::string::npos) << report;
  const ConfigSettings file = parse_config(report, "r", kServeVerb, no_secret);
  EXPECT_EQ(file.errors, "");
  const auto second =
      parse_arguments(kServeVerb, std::vector<std::string>{"DIR"}, no_environment, file).value();
  for (const Option& option : kServeVerb.options)
    if (option.form != OptionForm::operand) {
      EXPECT_EQ(first.text(option.name), second.text(option.name)) << option.name;
    }
}

TEST(SettingsReport, EveryVerbHasOneThatIsRead) {
  for (const Verb* verb : all_verbs()) {
    const auto arguments =
        parse_arguments(*verb, std::vector<std::string>{"--print-config"}, no_environment);
    ASSERT_TRUE(arguments.ok()) << verb->name << ": " << arguments.error().message;
    const std::string report = settings_report(*verb, arguments.value());
    EXPECT_EQ(parse_config(report, "r", *verb, no_secret).errors, "") << report;
  }
}

}  // namespace
}  // namespace nibble
