// The configuration file: values as flags have them, what wins, where it is looked for, and the
// words of refusals.
#include "cli/options/config_file.h"

#include <gtest/gtest.h>

#include <filesystem>

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

Result<Arguments> serve(std::vector<std::string> words, const ConfigSettings& config,
                        EnvironmentLookup environment = no_environment) {
  words.insert(words.begin(), "DIR");
  return parse_arguments(kServeVerb, words, environment, config);
}

TEST(ConfigFile, ValuesAreThoseOfFlags) {
  const struct {
    const char* line;
    const char* option;
    const char* text;
  } cases[] = {
      {"port = 9_000", "port", "9000"},
      {"port = 0x1F", "port", "31"},
      {"max-model-len = \"32K\"", "max-model-len", "32K"},
      {"max_model_len = 32768", "max-model-len", "32768"},
      {"device-memory-utilization = 0.85", "gpu-memory-utilization", "0.85"},
      {"web = false", "web", "false"},
      {"no-auth = true", "no-auth", "true"},
      {"served-model-name = [\"a\", \"b\", 3]", "served-model-name", "a,b,3"},
      {"served-model-name = \"a\"", "served-model-name", "a"},
      {"allowed-hosts = [\"x.lan\", \"y.lan:8000\"]", "allowed-hosts", "x.lan,y.lan:8000"},
      {"speculative-config = { method = \"ngram\", num_speculative_tokens = 3 }",
       "speculative-config", R"({"method":"ngram","num_speculative_tokens":3})"},
      {"speculative-config.method = \"ngram\"", "speculative-config", R"({"method":"ngram"})"},
      {"speculative-config = '{\"method\":\"ngram\"}'", "speculative-config",
       R"({"method":"ngram"})"},
      {"trust-remote-code = true", "trust-remote-code", "true"},  // vLLM's
  };
  for (const auto& c : cases) {
    const ConfigSettings settings = parsed(concat("[serve]\n", c.line, "\n"));
    EXPECT_EQ(settings.errors, "") << c.line;
    const auto arguments = serve({}, settings);
    ASSERT_TRUE(arguments.ok()) << arguments.error().message;
    EXPECT_EQ(arguments.value().text(c.option), c.text) << c.line;
    EXPECT_EQ(arguments.value().source(c.option), ValueSource::file) << c.line;
    EXPECT_EQ(arguments.value().origin(c.option), "c.toml line 2") << c.line;
  }
}

TEST(ConfigFile, TheModelNeedsNoWordOfItsOwn) {
  const auto arguments = parse_arguments(kServeVerb, std::vector<std::string>{}, no_environment,
                                         parsed("[serve]\nmodel = \"a/b\"\n"));
  EXPECT_EQ(arguments.value().positional(0), "a/b");
}

TEST(ConfigFile, FlagThenEnvironmentThenFileThenDefault) {
  const EnvironmentLookup environment = [](const std::string& name) -> std::optional<std::string> {
    if (name == "NIBBLE_PORT") return "2";
    if (name == "NIBBLE_SLEEP_IDLE") return "20";
    return std::nullopt;
  };
  const ConfigSettings file = parsed(
      "[serve]\nport = 3\nsleep-idle = 30\nshutdown-timeout = 300\n[quantize]\nrecipe=\"x\"");
  const auto arguments = serve({"--port", "1"}, file, environment).value();
  EXPECT_EQ(arguments.text("port"), "1");
  EXPECT_EQ(arguments.text("sleep-idle"), "20");
  EXPECT_EQ(arguments.text("shutdown-timeout"), "300");
  EXPECT_EQ(arguments.text("header-timeout"), "10");
  EXPECT_EQ(arguments.origin("port"), "--port");
  EXPECT_EQ(arguments.overridden("port"),
            (std::vector<std::string>{"NIBBLE_PORT", "c.toml line 2"}));
  EXPECT_EQ(arguments.origin("sleep-idle"), "NIBBLE_SLEEP_IDLE");
  EXPECT_EQ(arguments.overridden("sleep-idle"), (std::vector<std::string>{"c.toml line 3"}));
  EXPECT_EQ(arguments.origin("header-timeout"), "default");
  EXPECT_TRUE(arguments.given("shutdown-timeout"));
  EXPECT_FALSE(arguments.given("header-timeout"));
}

TEST(ConfigFile, SaysWhatIsWrongAndWhere) {
  const struct {
    const char* text;
    const char* message;
  } cases[] = {
      {"[serve]\nport = ", "c.toml line 2: expected TOML, found "},
      {"[serv]\nport = 1", "c.toml line 1: unknown verb \"serv\"; did you mean [serve]?"},
      {"[xyz]", "c.toml line 1: unknown verb \"xyz\"; options stand in the table of their verb"},
      {"port = 1", "c.toml line 1: no verb's table: \"port\"; write it below [serve]"},
      {"serve = 1", "c.toml line 1: serve: expected a table [serve], found a whole number"},
      {"[serve]\nports = 1", "c.toml line 2: unknown key \"ports\" of [serve]; did you mean port?"},
      {"[serve]\nzebra = 1",
       "c.toml line 2: unknown key \"zebra\" of [serve]; `nibble serve --help` lists the options"},
      {"[serve]\nno-web = true",
       "c.toml line 2: unknown key \"no-web\" of [serve]; write web = false"},
      {"[serve]\nconfig = \"x\"", "c.toml line 2: unknown key \"config\" of [serve]; "},
      {"[serve]\nweb = \"off\"", "line 2: web: expected true or false, found a string"},
      {"[serve]\nport = true", "line 2: port: expected a string or a number, found true or false"},
      {"[serve]\nport = [1]", "line 2: port: expected a string or a number, found a list"},
      {"[serve]\nport = 1979-05-27", "found a date or time"},
      {"[serve.host]\nx = 1", "line 1: host: expected a string or a number, found a table"},
      {"[serve]\nuds = \"a\\u0000b\"", "line 2: uds: expected a string or a number, found a null"},
      {"[serve]\nserved-model-name = [\"a,b\"]",
       "found an item that is empty or has a comma; each item is one word"},
      {"[serve]\nserved-model-name = []", "found an empty list; leave the key out"},
      {"[serve]\nserved-model-name = [true]", "found a list with true or false"},
      {"[serve]\nspeculative-config = 1", "--speculative-config"},
      {"[serve]\nmax-model-len = 512\nmax_model_len = 512",
       "max_model_len: expected each option once, found another name of max-model-len twice"},
      {"[quantize]\nzebra = 1", "c.toml line 2: unknown key \"zebra\" of [quantize]; "},
      {"[serve]\nport = 99999", "--port: expected a whole number from 0 to 65535, found \"99999\""},
  };
  for (const auto& c : cases) {
    const auto arguments = serve({}, parsed(c.text));
    ASSERT_FALSE(arguments.ok()) << c.text;
    EXPECT_EQ(arguments.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(arguments.error().message.find(c.message), std::string::npos)
        << arguments.error().message;
    EXPECT_EQ(arguments.error().message.find('\n'), std::string::npos) << arguments.error().message;
  }
}

TEST(ConfigFile, AllThatIsWrongIsToldAtOnceInTheOrderOfTheLines) {
  const auto arguments = serve({"--zebra"}, parsed("[serve]\nport = true\nports = 1\nhost = [1]"));
  EXPECT_EQ(arguments.error().message,
            "c.toml line 2: port: expected a string or a number, found true or false\n"
            "c.toml line 3: unknown key \"ports\" of [serve]; did you mean port?\n"
            "c.toml line 4: host: expected a string or a number, found a list\n"
            "unknown option --zebra; `nibble serve --help` lists the options");
}

std::string home;  // of the environment below
std::string named;

std::optional<std::string> environment_of_home(const std::string& name) {
  if (name == "XDG_CONFIG_HOME" && !home.empty()) return home;
  if (name == "XDG_CONFIG_DIRS") return concat("relative:", home, "/system");
  if (name == "HOME") return "/nowhere";
  if (name == "NIBBLE_CONFIG" && !named.empty()) return named == "none" ? "" : named;
  return std::nullopt;
}

std::string port_of(std::vector<std::string> words) {
  const ConfigSettings settings = read_config(kServeVerb, words, environment_of_home);
  if (!settings.errors.empty()) return settings.errors;
  return settings.values.empty() ? "" : settings.values[0].text;
}

TEST(ConfigFile, IsFoundByFlagEnvironmentAndTheXdgRule) {
  TemporaryFolder folder;
  home = folder.path().string();
  std::filesystem::create_directories(folder / "system/nibble");
  std::filesystem::create_directories(folder / "nibble");
  EXPECT_EQ(port_of({}), "");
  write_test_file(folder.path() / "system/nibble/config.toml", "[serve]\nport = 1\n");
  EXPECT_EQ(port_of({}), "1");
  write_test_file(folder.path() / "nibble/config.toml", "[serve]\nport = 2\n");
  EXPECT_EQ(port_of({}), "2");
  named = (folder.path() / "three").string();
  write_test_file(named, "[serve]\nport = 3\n");
  EXPECT_EQ(port_of({}), "3");
  write_test_file(folder.path() / "four", "[serve]\nport = 4\n");
  const std::string four = (folder.path() / "four").string();
  EXPECT_EQ(port_of({"--config", four}), "4");
  EXPECT_EQ(port_of({concat("--config=", four)}), "4");
  EXPECT_EQ(port_of({"--config="}), "");
  EXPECT_EQ(port_of({"--", "--config", four}), "3");
  named = "none";
  EXPECT_EQ(port_of({}), "");
  named = "/nowhere";
  EXPECT_NE(port_of({}).find("--config: cannot open /nowhere: No such file"), std::string::npos);
  named = home;
  EXPECT_NE(port_of({}).find("expected a regular file, found a directory"), std::string::npos);
  named = "/dev/zero";
  EXPECT_NE(port_of({}).find("expected a regular file, found a special file"), std::string::npos);
  named = (folder.path() / "large").string();
  write_test_file(named, std::string((1 << 20) + 1, '#'));
  EXPECT_NE(port_of({}).find("--config: "), std::string::npos);
  named.clear();
  home.clear();
}

}  // namespace
}  // namespace nibble
