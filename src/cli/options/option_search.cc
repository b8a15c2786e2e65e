// The search over the tables of the verbs.
#include "cli/options/option_search.h"

#include <algorithm>
#include <cctype>

namespace nibble {

namespace {

std::string folded(std::string_view text) {
  std::string out = with_dashes(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

bool has(const Option& option, std::string_view keyword) {
  for (const std::string_view text : {option.name, option.alias, option.value, option.help})
    if (folded(text).find(keyword) != std::string::npos) return true;
  return false;
}

/// Tells what becomes of a flag of another program.
std::string answer_to(const ForeignFlag& flag) {
  const std::string refused = concat("refused: ", flag.refused);
  if (flag.taken.empty()) return refused;
  const std::string accepted = concat("accepted, not needed: ", flag.accepted);
  if (flag.refused.empty()) return accepted;
  return concat(flag.taken, " ", accepted, "; anything else is ", refused);
}

/// Rows of what has the keyword; empty if nothing has.
std::string found_rows(const Verb& verb, std::string_view keyword) {
  std::vector<Option> found;
  for (const Option& option : verb.options)
    if (has(option, keyword)) found.push_back(option);
  std::string text = option_rows(found);
  for (const ForeignFlag& flag : verb.foreign) {
    if (folded(flag.option.name).find(keyword) == std::string::npos) continue;
    std::string left = concat("  --", flag.option.name);
    left.resize(std::max<size_t>(left.size() + 2, 32), ' ');
    text += concat(left, "vLLM's; ", answer_to(flag), "\n");
  }
  return text;
}

Error nothing_found(std::string_view keyword, std::span<const std::string_view> names,
                    std::string_view where) {
  const std::string_view near = nearest_name(keyword, names);
  return make_error(ErrorCode::invalid_argument,
                    {.what = concat("no option has \"", keyword, "\" in its name or help"),
                     .advice = near.empty() ? concat("`", where, " --help` lists them")
                                            : concat("did you mean ", near, "?")});
}

}  // namespace

Result<std::string> search_options(const Verb& verb, std::string_view keyword) {
  const std::string wanted = folded(keyword);
  std::string text = found_rows(verb, wanted);
  std::vector<Option> common;
  for (const Option& option : kCommonOptions)
    if (has(option, wanted)) common.push_back(option);
  text += option_rows(common);
  if (!wanted.empty() && !text.empty()) return text;
  std::vector<std::string_view> names;
  for (const Option& option : verb.options) names.push_back(option.name);
  return nothing_found(keyword, names, concat("nibble ", verb.name));
}

Result<std::string> search_all_options(std::string_view keyword) {
  const std::string wanted = folded(keyword);
  std::string text;
  std::vector<std::string_view> names;
  for (const Verb* verb : all_verbs()) {
    for (const Option& option : verb->options) names.push_back(option.name);
    const std::string rows = found_rows(*verb, wanted);
    if (!rows.empty()) text += concat(text.empty() ? "" : "\n", "nibble ", verb->name, ":\n", rows);
  }
  if (!wanted.empty() && !text.empty()) return text;
  return nothing_found(keyword, names, "nibble VERB");
}

}  // namespace nibble
