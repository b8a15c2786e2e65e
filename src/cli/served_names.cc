// Names from words.
#include "cli/served_names.h"

#include <filesystem>

namespace nibble {

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> items;
  while (!text.empty()) {
    const size_t end = text.find(',');
    if (end != 0) items.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return items;
}

std::vector<std::string> served_names(const Arguments& arguments) {
  std::vector<std::string> names = split_list(arguments.text(kServedNamesOption.name).value_or(""));
  if (!names.empty()) return names;
  const std::string& folder = arguments.positional(0);
  const auto path = std::filesystem::absolute(folder).lexically_normal();
  names = {path.has_filename() ? path.filename().string() : path.parent_path().filename().string()};
  if (folder != names[0]) names.push_back(folder);
  return names;
}

}  // namespace nibble
