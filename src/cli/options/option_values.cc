// Placeholders read as kinds of values.
#include "cli/options/option_values.h"

#include <algorithm>

namespace nibble {

namespace {

bool literal(std::string_view word) {
  return !word.empty() && std::ranges::all_of(word, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

/// Calls `take` with each alternative, without what stands in brackets after it.
template <typename Take>
void for_each_alternative(std::string_view placeholder, Take take) {
  while (!placeholder.empty()) {
    const size_t end = std::min(placeholder.find('|'), placeholder.size());
    const std::string_view word = placeholder.substr(0, end);
    take(word.substr(0, word.find('[')));
    placeholder.remove_prefix(std::min(end + 1, placeholder.size()));
  }
}

}  // namespace

ValueKind value_kind(std::string_view placeholder) {
  if (placeholder.empty()) return ValueKind::none;
  ValueKind kind = placeholder_words(placeholder).empty() ? ValueKind::other : ValueKind::words;
  for_each_alternative(placeholder, [&](std::string_view word) {
    const bool folder = word == "DIR" || word == "DIR2" || word == "FOLDER" || word == "SRC" ||
                        word == "DST" || word == "OUT";
    const bool file = word == "FILE" || word == "PATH" || word.find('.') != word.npos;
    if (file) kind = ValueKind::files;
    if (folder && kind != ValueKind::files) kind = ValueKind::folders;
  });
  return kind;
}

std::vector<std::string_view> placeholder_words(std::string_view placeholder) {
  std::vector<std::string_view> words;
  for_each_alternative(placeholder, [&](std::string_view word) {
    if (literal(word)) words.push_back(word);
  });
  return words;
}

std::vector<std::string_view> positional_words(const Verb& verb) {
  std::vector<std::string_view> words;
  std::string_view rest = verb.positionals;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(' '), rest.size());
    std::string_view word = rest.substr(0, end);
    if (word.starts_with('[') && word.ends_with(']')) word = word.substr(1, word.size() - 2);
    if (word.ends_with("...")) word.remove_suffix(3);
    words.push_back(word);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return words;
}

std::string_view short_help(std::string_view help) {
  constexpr size_t kBytesMax = 72;
  help = help.substr(0, help.find(';'));
  if (help.size() <= kBytesMax) return help;
  return help.substr(0, help.rfind(' ', kBytesMax));
}

}  // namespace nibble
