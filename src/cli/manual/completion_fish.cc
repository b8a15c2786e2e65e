// The completion of fish: one `complete` line for each verb and option.
#include "cli/manual/completion.h"
#include "cli/options/option_values.h"

namespace nibble {

namespace {

/// In single quotes of fish, where only a quote and a backslash are special.
std::string fish_word(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

/// The arguments of `complete` that offer values of this placeholder.
std::string value_part(std::string_view placeholder) {
  if (value_kind(placeholder) == ValueKind::files) return " -F";
  if (value_kind(placeholder) == ValueKind::folders)
    return " -f -a '(__fish_complete_directories)'";
  std::string words;
  for (const std::string_view word : placeholder_words(placeholder))
    words += concat(words.empty() ? "" : " ", word);
  return words.empty() ? " -f" : concat(" -f -a ", fish_word(words));
}

std::string option_part(const Verb& verb, const Option& option) {
  const std::string start =
      concat("complete -c nibble -n '__nibble_verb ", verb_key(verb), "' -l ");
  const std::string help = concat(" -d ", fish_word(short_help(option.help)), "\n");
  if (!option.value.empty())
    return concat(start, option.name, " -r", value_part(option.value), help);
  return concat(start, option.name, help, start, "no-", option.name, help);
}

}  // namespace

std::string fish_completion() {
  std::string text = R"(# fish completion of nibble, as `nibble completion fish` prints it
function __nibble_verb
    set -l words (commandline -opc)
    test (count $words) -ge 2; or return 1
    set -l verb $words[2]
    if contains -- $verb GROUPS; and test (count $words) -ge 3
        set verb $verb-$words[3]
    end
    test $verb = $argv[1]
end
function __nibble_no_verb
    test (count (commandline -opc)) -eq 1
end
complete -c nibble -f
complete -c nibble -n __nibble_no_verb -l help -d 'lists the verbs'
complete -c nibble -n __nibble_no_verb -l version -d 'prints the version'
)";
  std::string groups;
  for (const std::string_view first : first_words()) {
    const auto words = second_words(first);
    const Verb* only = words.empty() ? find_verb(std::vector{std::string(first)}) : nullptr;
    text += concat("complete -c nibble -n __nibble_no_verb -a ", first, " -d ",
                   fish_word(only != nullptr ? only->summary : "several verbs"), "\n");
    if (!words.empty()) groups += concat(groups.empty() ? "" : " ", first);
    for (const auto& [word, verb] : words)
      text += concat("complete -c nibble -n '__nibble_verb ", first, "' -a ", word, " -d ",
                     fish_word(verb->summary), "\n");
  }
  constexpr std::string_view kPlace = "GROUPS";
  text.replace(text.find(kPlace), kPlace.size(), groups);
  for (const Verb* verb : all_verbs()) {
    text += concat("complete -c nibble -n '__nibble_verb ", verb_key(*verb),
                   "' -l help -d 'explains the options'\n");
    for (const Option& option : verb->options) text += option_part(*verb, option);
    for (const Option& option : kCommonOptions) text += option_part(*verb, option);
    const auto places = positional_words(*verb);
    if (!places.empty())
      text += concat("complete -c nibble -n '__nibble_verb ", verb_key(*verb), "'",
                     value_part(places[0]), "\n");
  }
  return text;
}

}  // namespace nibble
