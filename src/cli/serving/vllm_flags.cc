// Values of vLLM's flags against the rows; the lines and the table about them.
#include "cli/serving/vllm_flags.h"

#include <unistd.h>

#include <cctype>

#include "base/json.h"
#include "cli/options/flag_errors.h"

namespace nibble {

namespace {

bool same_word(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

bool whole_numbers(std::string_view text) {
  bool all = true;
  std::string words(text);
  std::ranges::replace(words, ',', ' ');
  for_each_word(words, [&all](std::string_view word) { all = all && read_size(word) >= 0; });
  return all && !text.empty();
}

bool taken(const ForeignFlag& flag, const std::string& value) {
  if (flag.option.value.starts_with("JSON") && flag.taken == "*")
    return parse_json(value, "value").ok();
  if (flag.taken == "*") return true;
  if (flag.taken == "N") return whole_numbers(value);
  bool listed = false;
  std::string words(flag.taken);
  std::ranges::replace(words, ',', ' ');
  for_each_word(words, [&](std::string_view word) { listed = listed || same_word(word, value); });
  return listed;
}

/// "one of qwen3, deepseek_r1".
std::string expected_of(const ForeignFlag& flag) {
  if (flag.taken == "*") return "JSON";
  if (flag.taken == "N")
    return flag.option.form == OptionForm::several ? "whole numbers" : "a whole number";
  std::string list;
  for (const char c : flag.taken) list += c == ',' ? std::string(", ") : std::string(1, c);
  return flag.taken.find(',') == std::string_view::npos ? list : concat("one of ", list);
}

Error refusal(const ForeignFlag& flag, const std::string& value) {
  if (flag.taken.empty() || (flag.option.value.empty() && value == "true"))
    return make_error(ErrorCode::invalid_argument,
                      {.what = concat("--", flag.option.name, " is refused: ", flag.refused)});
  return make_error(ErrorCode::invalid_argument, {.what = concat("--", flag.option.name),
                                                  .expected = expected_of(flag),
                                                  .found = concat("\"", value, "\""),
                                                  .advice = flag.refused});
}

/// Names as they are typed: "`--a`, `--b`".
std::string typed_names(std::string_view names) {
  std::string text;
  for_each_word(names, [&text](std::string_view word) {
    text += concat(text.empty() ? "" : ", ", "`--", vllm_option(word).name, "`");
  });
  return text;
}

std::string table_row(const VllmFlagGroup& group) {
  const std::string names = typed_names(group.names);
  if (group.taken.empty()) return concat("| ", names, " | refused | ", group.refused, " |\n");
  if (group.refused.empty()) return concat("| ", names, " | accepted | ", group.accepted, " |\n");
  std::string values = "`";
  for (const char c : group.taken) values += c == ',' ? std::string("`, `") : std::string(1, c);
  values = group.taken == "N" ? "numbers" : values + "`";
  const std::string why = group.accepted == group.refused
                              ? std::string(group.accepted)
                              : concat(group.accepted, ". Else: ", group.refused);
  return concat("| ", names, " | ", values, " accepted, else refused | ", why, " |\n");
}

}  // namespace

Result<void> check_vllm_flags(const Arguments& arguments) {
  FlagErrors errors;
  for (const ForeignFlag& flag : kVllmFlags) {
    const std::string value = arguments.text(flag.option.name).value_or("");
    if (arguments.given(flag.option.name) && !taken(flag, value)) errors.add(refusal(flag, value));
  }
  return errors.result();
}

std::vector<std::string> vllm_flag_notices(const Arguments& arguments) {
  std::vector<std::string> notices;
  for (const ForeignFlag& flag : kVllmFlags) {
    if (!arguments.given(flag.option.name)) continue;
    const std::string value = *arguments.text(flag.option.name);
    notices.push_back(concat("--", flag.option.name, value == "true" ? "" : concat(" ", value),
                             " is not needed: ", flag.accepted));
  }
  return notices;
}

std::string vllm_variables_notice() {
  constexpr std::string_view kPrefix = "VLLM_";
  constexpr std::string_view kRead = "VLLM_API_KEY";
  std::string names;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view name =
        std::string_view(*variable).substr(0, std::string_view(*variable).find('='));
    if (name.starts_with(kPrefix) && name != kRead)
      names += concat(names.empty() ? "" : ", ", name);
  }
  if (names.empty()) return names;
  return concat("the environment's ", names, ": not read here; options are NIBBLE_<NAME>");
}

std::string vllm_flag_table() {
  std::string text = "| vLLM's flag | here | |\n|---|---|---|\n";
  for (const VllmOption& option : kVllmOptions)
    text += concat("| ", typed_names(option.names), " | honoured | ", option.what, " |\n");
  for (const VllmFlagGroup& group : kVllmFlagGroups) text += table_row(group);
  for (size_t at = text.find('<'); at != text.npos; at = text.find('<', at + 2))
    text.insert(at, "\\");  // else Markdown takes <think> for HTML
  return text;
}

}  // namespace nibble
