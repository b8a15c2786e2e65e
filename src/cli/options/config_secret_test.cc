// Secrets of the configuration file: they are read from files of their own and shown nowhere.
#include <gtest/gtest.h>

#include "cli/options/config_file.h"
#include "cli/options/settings_report.h"
#include "cli/serving/server_options.h"
#include "testing/test_files.h"

namespace nibble {
namespace {

std::optional<std::string> no_environment(const std::string&) { return std::nullopt; }

Result<std::string> no_secret(const std::string& path) {
  return Error{ErrorCode::not_found, concat("no file ", path)};
}

ConfigSettings parsed(std::string_view text) {
  return parse_config(text, "c.toml", kServeVerb, no_secret);
}

TEST(ConfigSecret, SecretsComeFromFilesAndAreShownNowhere) {
  TemporaryFolder folder;
  const std::string path = (folder.path() / "keys").string();
  write_test_file(path, "sesame\nopen\r\n");
  const std::string text = concat("[serve]\napi-key = { file = \"", path, "\" }\n");
  const ConfigSettings settings = parse_config(text, "c.toml", kServeVerb, read_secret);
  EXPECT_EQ(settings.errors, "");
  const auto arguments =
      parse_arguments(kServeVerb, std::vector<std::string>{"DIR"}, no_environment, settings)
          .value();
  EXPECT_EQ(read_server_flags(arguments).value().api_keys,
            (std::vector<std::string>{"sesame", "open"}));
  const std::string report = settings_report(kServeVerb, arguments);
  EXPECT_EQ(report.find("sesame"), std::string::npos) << report;
  EXPECT_NE(report.find("# api-key is set and hidden: c.toml line 2\n"), std::string::npos);

  for (const char* line :
       {"api-key = \"sesame\"", "api-key = [\"sesame\"]", "api-key = \"sesame", "api-key = sesame",
        "api-key = { file = \"/nowhere\", text = \"sesame\" }", "api_key = { sesame = 1 }"}) {
    const std::string said =
        parse_config(concat("[serve]\n", line, "\n"), "c.toml", kServeVerb, read_secret).errors;
    EXPECT_NE(said, "") << line;
    EXPECT_EQ(said.find("sesame"), std::string::npos) << said;
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
  }
  EXPECT_EQ(parsed("[serve]\napi-key = { file = \"/nowhere\" }").errors,
            "c.toml line 2: api-key: no file /nowhere");
  EXPECT_EQ(parsed("[connect]\napi-key = { file = \"/nowhere\" }").errors, "");  // not this verb's
}

TEST(ConfigSecret, FilesOfSecretsAreChecked) {
  TemporaryFolder folder;
  const std::string path = (folder.path() / "key").string();
  const struct {
    std::string text;
    const char* message;
  } cases[] = {{"", "expected a secret on each line, found nothing"},
               {"\n", "found nothing"},
               {std::string("a\0b", 3), "found control characters"},
               {"a\tb", "found control characters"},
               {std::string(70000, 'a'), "too large"}};
  for (const auto& c : cases) {
    std::filesystem::remove(path);
    write_test_file(path, c.text);
    const auto secret = read_secret(path);
    ASSERT_FALSE(secret.ok());
    EXPECT_NE(secret.error().message.find(c.message), std::string::npos) << secret.error().message;
  }
  EXPECT_EQ(read_secret((folder.path() / "none").string()).error().code, ErrorCode::not_found);
}

}  // namespace
}  // namespace nibble
