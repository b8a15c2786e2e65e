// Finding and reading the configuration file.
#include "cli/options/config_file.h"

#include <algorithm>
#include <filesystem>

#include "base/file.h"

namespace nibble {

namespace {

constexpr uint64_t kFileBytesMax = uint64_t{1} << 20;
constexpr uint64_t kSecretBytesMax = uint64_t{64} << 10;

/// The value of --config, of the last if there are several; it stands before the word "--".
std::optional<std::string> config_flag(std::span<const std::string> words) {
  std::optional<std::string> path;
  for (size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    constexpr std::string_view kAttached = "--config=";
    if (words[i].starts_with(kAttached)) path = words[i].substr(kAttached.size());
    if (words[i] == "--config" && i + 1 < words.size()) path = words[i + 1];
  }
  return path;
}

std::string text_or(EnvironmentLookup environment, const char* name, std::string fallback) {
  const std::string value = environment(name).value_or("");
  return value.empty() ? std::move(fallback) : value;
}

/// The files that the XDG base directory specification names, the most important first. Paths that
/// are not absolute are to be ignored, as it says.
std::vector<std::filesystem::path> usual_places(EnvironmentLookup environment) {
  std::vector<std::filesystem::path> folders;
  const std::string home = text_or(environment, "HOME", "");
  folders.emplace_back(
      text_or(environment, "XDG_CONFIG_HOME", home.empty() ? home : home + "/.config"));
  std::string_view rest;
  const std::string system = text_or(environment, "XDG_CONFIG_DIRS", "/etc/xdg");
  for (rest = system; !rest.empty();) {
    const size_t end = std::min(rest.find(':'), rest.size());
    folders.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  std::erase_if(folders, [](const auto& folder) { return !folder.is_absolute(); });
  for (auto& folder : folders) folder /= "nibble/config.toml";
  return folders;
}

}  // namespace

Result<std::string> read_secret(const std::string& path) {
  std::string text = TRY(read_text_file(path, kSecretBytesMax));
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  std::string words;
  for (const char c : text)
    if (c != '\r') words += c == '\n' ? ',' : c;
  const bool odd =
      std::ranges::any_of(words, [](char c) { return (c >= 0 && c < ' ') || c == 127; });
  if (!words.empty() && !odd) return words;
  return make_error(ErrorCode::invalid_argument,
                    {.what = path,
                     .expected = "a secret on each line",
                     .found = words.empty() ? "nothing" : "control characters"});
}

ConfigSettings read_config(const Verb& verb, std::span<const std::string> words,
                           EnvironmentLookup environment) {
  std::optional<std::string> named = config_flag(words);
  if (!named) named = environment(environment_name("config"));
  if (named && named->empty()) return {};
  std::vector<std::filesystem::path> places;
  if (named) places.emplace_back(*named);
  if (!named) places = usual_places(environment);
  for (const auto& place : places) {
    const auto text = read_text_file(place, kFileBytesMax);
    if (text.ok()) return parse_config(text.value(), place.string(), verb, read_secret);
    if (named || text.error().code != ErrorCode::not_found)
      return {.values = {}, .errors = concat("--config: ", text.error().message)};
  }
  return {};
}

}  // namespace nibble
