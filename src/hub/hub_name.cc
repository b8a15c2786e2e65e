// Rules of names; nothing here touches files or the network.
#include "hub/hub_name.h"

#include <algorithm>
#include <cctype>

#include "base/json.h"

namespace nibble {
namespace {

constexpr size_t kPartBytesMax = 96;  // of the owner and of the name, as on the hub
constexpr size_t kRevisionBytesMax = 255;
constexpr size_t kCommitDigits = 40;
constexpr size_t kPathBytesMax = 1024;
constexpr size_t kPathPartBytesMax = 255;
constexpr std::string_view kFolderPrefix = "models--";

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool is_hub_part(std::string_view part) {
  return !part.empty() && part.size() <= kPartBytesMax && is_word(part.front()) &&
         is_word(part.back()) &&
         std::ranges::all_of(part, [](char c) { return is_word(c) || c == '.' || c == '-'; });
}

bool is_control(char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7F; }

/// Calls `fits` with each part between slashes; false as soon as one is not fine.
template <typename Fits>
bool all_parts(std::string_view text, const Fits& fits) {
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('/', begin), text.size());
    if (!fits(text.substr(begin, end - begin))) return false;
    begin = end + 1;
  }
  return true;
}

bool is_revision(std::string_view text) {
  if (text.empty() || text.size() > kRevisionBytesMax) return false;
  if (std::ranges::any_of(text, [](char c) { return is_control(c) || c == ' ' || c == '\\'; }))
    return false;
  return all_parts(text, [](std::string_view part) {
    return !part.empty() && part.front() != '.' && part.find("..") == part.npos;
  });
}

}  // namespace

std::optional<HubName> parse_hub_name(std::string_view word) {
  const size_t at = word.find('@');
  const std::string_view repository = word.substr(0, at);
  const size_t slash = repository.find('/');
  if (slash == repository.npos || !is_hub_part(repository.substr(0, slash)) ||
      !is_hub_part(repository.substr(slash + 1)) || repository.find("..") != repository.npos ||
      repository.find("--") != repository.npos || repository.ends_with(".git"))
    return std::nullopt;
  if (at == word.npos) return HubName{.repository = std::string(repository), .revision = ""};
  if (at + 1 == word.size()) return std::nullopt;
  return HubName{.repository = std::string(repository),
                 .revision = std::string(word.substr(at + 1))};
}

bool is_hub_commit(std::string_view text) {
  return text.size() == kCommitDigits && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

Result<void> check_hub_revision(const HubName& name) {
  if (name.revision.empty() || is_revision(name.revision)) return {};
  return make_error(
      ErrorCode::invalid_argument,
      {.what = concat("revision of ", name.repository),
       .expected = concat("a branch, tag or commit of at most ", kRevisionBytesMax,
                          " bytes, without blanks, \"..\" or a part that starts with a dot"),
       .found = Json(name.revision.substr(0, kRevisionBytesMax)).dump()});
}

std::string hub_folder_name(std::string_view repository) {
  std::string folder = concat(kFolderPrefix, repository);
  folder.replace(folder.find('/'), 1, "--");
  return folder;
}

std::optional<std::string> repository_of_folder(std::string_view folder) {
  if (!folder.starts_with(kFolderPrefix)) return std::nullopt;
  std::string name(folder.substr(kFolderPrefix.size()));
  const size_t mark = name.find("--");
  if (mark == name.npos) return std::nullopt;
  name.replace(mark, 2, "/");
  const auto parsed = parse_hub_name(name);
  if (!parsed || !parsed->revision.empty()) return std::nullopt;
  return name;
}

Result<void> check_hub_path(std::string_view path) {
  const bool fine =
      path.size() <= kPathBytesMax &&
      std::ranges::none_of(path, [](char c) { return is_control(c) || c == '\\'; }) &&
      all_parts(path, [](std::string_view part) {
        return !part.empty() && part.size() <= kPathPartBytesMax && part != "." && part != "..";
      });
  if (fine) return {};
  constexpr size_t kShownMax = 80;
  return make_error(
      ErrorCode::corrupt,
      {.what = "the hub lists a file that may not be written here",
       .expected =
           "a path below the repository of at most 1024 bytes, without \"..\", empty parts, "
           "backslashes and control characters",
       .found = Json(path.substr(0, kShownMax)).dump()});
}

std::string url_path(std::string_view path) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte < 0x80 && (is_word(c) || c == '-' || c == '.' || c == '~' || c == '/');
    if (plain) {
      out += c;
      continue;
    }
    out += '%';
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

}  // namespace nibble
