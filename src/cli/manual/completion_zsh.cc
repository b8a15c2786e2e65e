// The completion of zsh: a function for compinit, with one call of _arguments for each verb.
#include "cli/manual/completion.h"
#include "cli/options/option_values.h"

namespace nibble {

namespace {

/// Text within single quotes where `special` characters need a backslash.
std::string escaped(std::string_view text, std::string_view special) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
      continue;
    }
    if (c == '\\' || special.find(c) != special.npos) out += '\\';
    out += c;
  }
  return out;
}

/// ":placeholder:action" of _arguments.
std::string value_part(std::string_view placeholder) {
  std::string action = " ";
  if (value_kind(placeholder) == ValueKind::files) action = "_files";
  if (value_kind(placeholder) == ValueKind::folders) action = "_files -/";
  if (value_kind(placeholder) == ValueKind::words) {
    action = "(";
    for (const std::string_view word : placeholder_words(placeholder))
      action += concat(action.size() > 1 ? " " : "", word);
    action += ")";
  }
  return concat(":", escaped(placeholder, ":"), ":", action);
}

std::string option_part(const Option& option) {
  const std::string help = concat("[", escaped(short_help(option.help), "[]"), "]");
  if (!option.value.empty())
    return concat(" \\\n        '--", option.name, "=", help, value_part(option.value), "'");
  return concat(" \\\n        '--", option.name, help, "' \\\n        '--no-", option.name, help,
                "'");
}

/// The case of `word`, the verb's name or its second word.
std::string verb_part(std::string_view word, const Verb& verb) {
  std::string text = concat("      ", word, ")\n      _arguments '--help[explains the options]'");
  for (const Option& option : verb.options) text += option_part(option);
  for (const Option& option : kCommonOptions) text += option_part(option);
  for (const std::string_view place : positional_words(verb)) {
    // An action that offers nothing would hide the options.
    const bool free = value_kind(place) == ValueKind::other;
    text +=
        concat(" \\\n        '", free ? concat(":", place, ":_default") : value_part(place), "'");
  }
  return text + " ;;\n";
}

/// The case of a first word that several verbs share: a second word, then that verb's options.
std::string group_part(std::string_view first) {
  std::string kinds, cases;
  for (const auto& [word, verb] : second_words(first)) {
    kinds += concat("    '", word, ":", escaped(verb->summary, ""), "'\n");
    cases += verb_part(word, *verb);
  }
  return concat("      ", first, ")\n      local -a kinds\n      kinds=(\n", kinds,
                "      )\n      _arguments -C '1:kind:->kind' '*::argument:->argument'\n"
                "      case $state in\n      kind) _describe kind kinds ;;\n      argument)\n"
                "      case $line[1] in\n",
                cases, "      esac ;;\n      esac ;;\n");
}

}  // namespace

std::string zsh_completion() {
  std::string verbs, cases;
  for (const std::string_view first : first_words()) {
    const auto words = second_words(first);
    const Verb* only = words.empty() ? find_verb(std::vector{std::string(first)}) : nullptr;
    verbs += concat("    '", first, ":",
                    escaped(only != nullptr ? only->summary : "several verbs", ""), "'\n");
    cases += only != nullptr ? verb_part(first, *only) : group_part(first);
  }
  return concat(
      "#compdef nibble\n# zsh completion of nibble, as `nibble completion zsh` prints "
      "it\n_nibble() "
      "{\n  local context state state_descr line\n  typeset -A opt_args\n  local -a verbs\n  "
      "verbs=(\n",
      verbs,
      "  )\n  _arguments -C '1:verb:->verb' '*::argument:->argument'\n  case $state in\n    verb) "
      "_describe verb verbs ;;\n    argument)\n    case $line[1] in\n",
      cases,
      "    esac ;;\n  esac\n}\nif [[ $funcstack[1] == _nibble ]]; then\n  _nibble \"$@\"\nelse\n  "
      "compdef _nibble nibble\nfi\n");
}

}  // namespace nibble
