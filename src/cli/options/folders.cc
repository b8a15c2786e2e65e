// Words and environment as paths. The Hugging Face cache itself is hub_cache.cc.
#include "cli/options/folders.h"

#include <cstdlib>

namespace nibble {

namespace fs = std::filesystem;

std::string folder_name(const fs::path& path) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

fs::path user_folder(const char* variable, std::string_view fallback) {
  const auto absolute = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && *value == '/' ? fs::path(value) : fs::path();
  };
  if (const auto given = absolute(variable); !given.empty()) return given / "nibble";
  const auto home = absolute("HOME");
  return home.empty() ? home : home / fallback / "nibble";
}

std::optional<HubName> hub_name_of(const std::string& word) {
  std::error_code failure;
  if (fs::exists(word, failure)) return std::nullopt;
  return parse_hub_name(word);
}

namespace {

const char* variable_of(const char* name) { return std::getenv(name); }

/// The line about a path that exists, where the Hugging Face cache has the model too; else empty.
std::string notice_of(const std::string& word, std::string_view revision, SnapshotNeeds needs) {
  const auto name = parse_hub_name(word);
  if (name && find_hub_folder(hub_cache_folder(variable_of), *name, needs).ok())
    return concat(word, ": the folder here is taken, not the model of the Hugging Face cache\n");
  if (revision.empty()) return "";
  return concat("--revision ", revision, " is not needed: ", word, " is a folder here\n");
}

}  // namespace

Result<fs::path> checkpoint_folder(const std::string& word, Terminal& terminal, SnapshotNeeds needs,
                                   std::string_view revision) {
  auto name = hub_name_of(word);
  std::error_code failure;
  if (!name && !fs::exists(word, failure))
    name = TRY(find_hub_alias(hub_cache_folder(variable_of), word));
  if (!name) {
    terminal.err(notice_of(word, revision, needs));
    return fs::path(word);
  }
  if (!name->revision.empty() && !revision.empty() && name->revision != revision)
    return make_error(ErrorCode::invalid_argument,
                      {.what = word,
                       .expected = "one revision",
                       .found = concat(name->revision, " and --revision ", revision)});
  if (name->revision.empty()) name->revision = revision;
  return find_hub_folder(hub_cache_folder(variable_of), *name, needs);
}

Result<fs::path> first_folder(const Arguments& arguments, Terminal& terminal, SnapshotNeeds needs) {
  const std::string revision = arguments.text(kRevisionOption.name).value_or("");
  return checkpoint_folder(arguments.positional(0), terminal, needs, revision);
}

}  // namespace nibble
