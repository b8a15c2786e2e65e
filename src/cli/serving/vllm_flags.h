// vLLM's flags on a command line of `nibble serve`: each is an option here, or accepted with a line
// that says why it is not needed, or refused with the reason. Nothing of them is ignored silently.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "cli/serving/vllm_flag_rows.h"
#include "cli/verb.h"

namespace nibble {

/// Calls `take` with each word of `text`.
template <typename Take>
constexpr void for_each_word(std::string_view text, Take take) {
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    if (end > 0) take(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

/// The option that a word of VllmFlagGroup::names describes.
constexpr Option vllm_option(std::string_view word) {
  Option option;
  if (const size_t comma = word.find(','); comma != word.npos) {
    option.alias = word.substr(comma + 1);
    word = word.substr(0, comma);
  }
  option.name = word.substr(0, word.find('='));
  if (option.name.size() == word.size()) return option;
  option.value = word.substr(option.name.size() + 1);
  if (option.value.ends_with("...")) {
    option.form = OptionForm::several;
    option.value.remove_suffix(3);
  }
  return option;
}

/// kVllmFlagGroups, a row a flag.
inline constexpr auto kVllmFlags = [] {
  constexpr size_t kCount = [] {
    size_t count = 0;
    for (const VllmFlagGroup& group : kVllmFlagGroups)
      for_each_word(group.names, [&count](std::string_view) { ++count; });
    return count;
  }();
  std::array<ForeignFlag, kCount> flags;
  size_t at = 0;
  for (const VllmFlagGroup& group : kVllmFlagGroups)
    for_each_word(group.names, [&](std::string_view word) {
      flags[at++] = {vllm_option(word), group.taken, group.accepted, group.refused};
    });
  return flags;
}();

/// Errors: a line for each of kVllmFlags that is given with a value that is not taken.
Result<void> check_vllm_flags(const Arguments& arguments);

/// "--trust-remote-code is not needed: ...": of each flag of kVllmFlags that is given.
std::vector<std::string> vllm_flag_notices(const Arguments& arguments);

/// One line that names the variables VLLM_... of the environment, which are not read; empty if
/// there are none.
std::string vllm_variables_notice();

/// The table of all of vLLM's flags as Markdown: what docs/serving.md shows, `--help=vllm` prints.
std::string vllm_flag_table();

}  // namespace nibble
