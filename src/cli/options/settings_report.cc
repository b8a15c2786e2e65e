// Options as lines of TOML.
#include "cli/options/settings_report.h"

#include <algorithm>

#include "base/json.h"

namespace nibble {

namespace {

/// A basic string of TOML: JSON's, which leaves the one character as it is that TOML does not.
std::string in_quotes(std::string_view text) {
  std::string quoted;
  for (const char c : Json(text).dump()) quoted += c == 127 ? "\\u007F" : std::string(1, c);
  return quoted;
}

bool whole_number(std::string_view text) {
  constexpr size_t kDigitsMax = 18;  // fits 64 bits
  const bool digits =
      !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  return digits && text.size() <= kDigitsMax && (text[0] != '0' || text.size() == 1);
}

std::string toml_value(const Option& option, const std::string& text) {
  if (option.value.empty()) return text == "true" ? "true" : "false";
  if (option.form != OptionForm::several) return whole_number(text) ? text : in_quotes(text);
  std::string list;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin)
      list += concat(list.empty() ? "" : ", ", in_quotes(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return concat("[", list, "]");
}

std::string origin_of(const Option& option, const Arguments& arguments) {
  std::string text = arguments.origin(option.name);
  std::string_view between = ", before ";
  for (const std::string& weaker : arguments.overridden(option.name))
    text += concat(std::exchange(between, " and "), weaker);
  return text;
}

std::string line_of(const Option& option, const Arguments& arguments) {
  const auto text = arguments.text(option.name);
  if (!text) return concat("# ", option.name, " is not set\n");
  const std::string origin = origin_of(option, arguments);
  if (option.secrecy == OptionSecrecy::secret)
    return concat("# ", option.name, " is set and hidden: ", origin, "\n");
  return concat(option.name, " = ", toml_value(option, *text), "  # ", origin, "\n");
}

}  // namespace

std::string settings_report(const Verb& verb, const Arguments& arguments) {
  std::string text = concat("[", verb_key(verb), "]\n");
  for (const Option& option : verb.options) text += line_of(option, arguments);
  for (const ForeignFlag& flag : verb.foreign)
    if (arguments.given(flag.option.name)) text += line_of(flag.option, arguments);
  return text;
}

}  // namespace nibble
