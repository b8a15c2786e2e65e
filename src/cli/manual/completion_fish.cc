// The completion of fish: one `complete` line for each verb and option.
#include "cli/manual/completion.h"
#include "cli/options/option_values.h"

namespace nibble {

namespace {

/// In single quotes of fish, where only a quote and a backslash are special.
std::string quoted(std::string_view text) {
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
  return words.empty() ? " -f" : concat(" -f -a ", quoted(words));
}

std::string option_part(const Verb& verb, const Option& option) {
  const std::string start = concat("complete -c nibble -n '__nibble_verb ", verb.name, "' -l ");
  const std::string help = concat(" -d ", quoted(short_help(option.help)), "\n");
  if (!option.value.empty())
    return concat(start, option.name, " -r", value_part(option.value), help);
  return concat(start, option.name, help, start, "no-", option.name, help);
}

}  // namespace

std::string fish_completion() {
  std::string text = R"(# fish completion of nibble, as `nibble completion fish` prints it
function __nibble_verb
    set -l words (commandline -opc)
    test (count $words) -ge 2; and test $words[2] = $argv[1]
end
function __nibble_no_verb
    test (count (commandline -opc)) -eq 1
end
complete -c nibble -f
complete -c nibble -n __nibble_no_verb -l help -d 'lists the verbs'
complete -c nibble -n __nibble_no_verb -l version -d 'prints the version'
)";
  for (const Verb* verb : all_verbs()) {
    text += concat("complete -c nibble -n __nibble_no_verb -a ", verb->name, " -d ",
                   quoted(verb->summary), "\n");
    text += concat("complete -c nibble -n '__nibble_verb ", verb->name,
                   "' -l help -d 'explains the options'\n");
    for (const Option& option : verb->options) text += option_part(*verb, option);
    for (const Option& option : kCommonOptions) text += option_part(*verb, option);
    const auto places = positional_words(*verb);
    if (!places.empty())
      text += concat("complete -c nibble -n '__nibble_verb ", verb->name, "'",
                     value_part(places[0]), "\n");
  }
  return text;
}

}  // namespace nibble
