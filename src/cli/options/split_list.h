// Lists with commas, as options have them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nibble {

/// The non-empty items between commas.
inline std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> items;
  while (!text.empty()) {
    const size_t end = text.find(',');
    if (end != 0) items.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return items;
}

}  // namespace nibble
