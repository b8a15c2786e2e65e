// Names of options: in the environment, with dashes, and the option that has one.
#include <algorithm>
#include <cctype>

#include "cli/verb.h"

namespace nibble {

std::string environment_name(std::string_view option) {
  std::string name = "NIBBLE_";
  for (const char c : option)
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

std::string with_dashes(std::string_view name) {
  std::string text(name);
  std::ranges::replace(text, '_', '-');
  return text;
}

const Option* find_option(const Verb& verb, std::string_view name) {
  const auto called = [name](const Option& option) {
    return option.name == name || (!option.alias.empty() && option.alias == name);
  };
  for (const auto& option : verb.options)
    if (called(option)) return &option;
  for (const auto& flag : verb.foreign)
    if (called(flag.option)) return &flag.option;
  for (const auto& option : kCommonOptions)
    if (called(option)) return &option;
  return nullptr;
}

}  // namespace nibble
