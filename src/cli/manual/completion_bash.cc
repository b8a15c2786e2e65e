// The completion of bash: one function, which bash calls with the words of the line.
#include <vector>

#include "cli/manual/completion.h"
#include "cli/options/option_values.h"

namespace nibble {

namespace {

std::string joined(const std::vector<std::string_view>& words, std::string_view between = " ") {
  std::string text;
  for (const std::string_view word : words) text += concat(text.empty() ? "" : between, word);
  return text;
}

/// The command that offers values of this placeholder; empty if there is nothing to offer.
std::string offer(std::string_view placeholder) {
  switch (value_kind(placeholder)) {
    case ValueKind::words:
      return concat("_nibble_words '", joined(placeholder_words(placeholder)), "'");
    case ValueKind::files:
      return "_nibble_paths -f";
    case ValueKind::folders:
      return "_nibble_paths -d";
    default:
      return {};
  }
}

/// "--name" and "--no-name", all on one line.
std::string option_list(const Verb& verb) {
  std::string text = "--help";
  const auto add = [&text](const Option& option) {
    text += concat(" --", option.name);
    if (option.value.empty()) text += concat(" --no-", option.name);
  };
  for (const Option& option : verb.options) add(option);
  for (const Option& option : kCommonOptions) add(option);
  return text;
}

std::string value_cases(const Verb& verb) {
  std::string text;
  const auto add = [&](const Option& option) {
    if (option.value.empty()) return;
    const std::string action = offer(option.value);
    text += concat("    '", verb_key(verb), " --", option.name, "') ", action,
                   action.empty() ? "" : "; ", "return ;;\n");
  };
  for (const Option& option : verb.options) add(option);
  for (const Option& option : kCommonOptions) add(option);
  return text;
}

/// The case of a first word that several verbs share; empty for any other.
std::string group_case(std::string_view first) {
  std::vector<std::string_view> words;
  for (const auto& [word, verb] : second_words(first)) words.push_back(word);
  if (words.empty()) return {};
  return concat("    ", first, ")\n      if ((COMP_CWORD == 2)); then _nibble_words '",
                joined(words), "'; return; fi\n      verb=$verb-${COMP_WORDS[2]} ;;\n");
}

constexpr std::string_view kHead =
    R"(# bash completion of nibble, as `nibble completion bash` prints it
_nibble_words() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur"); }
_nibble_paths() {
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen "$1" -- "$cur")
}
_nibble() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]}
  COMPREPLY=()
  if [[ $cur == = ]]; then
    cur=
  elif [[ $prev == = ]]; then
    prev=${COMP_WORDS[COMP_CWORD-2]}
  fi
)";

}  // namespace

std::string bash_completion() {
  std::string verbs, groups, values, options, positionals;
  for (const std::string_view word : first_words()) {
    verbs += concat(word, " ");
    groups += group_case(word);
  }
  for (const Verb* verb : all_verbs()) {
    values += value_cases(*verb);
    options += concat("      ", verb_key(*verb), ") _nibble_words '", option_list(*verb), "' ;;\n");
    const auto places = positional_words(*verb);
    const std::string action = places.empty() ? "" : offer(places[0]);
    if (!action.empty()) positionals += concat("    ", verb_key(*verb), ") ", action, " ;;\n");
  }
  return concat(kHead, "  if ((COMP_CWORD == 1)); then\n    _nibble_words '", verbs,
                "--help --version'\n    return\n  fi\n  case $verb in\n", groups,
                "  esac\n  case \"$verb $prev\" in\n", values,
                "  esac\n  if [[ $cur == -* ]]; then\n    case $verb in\n", options,
                "    esac\n    return\n  fi\n  case $verb in\n", positionals,
                "  esac\n}\ncomplete -F _nibble nibble\n");
}

}  // namespace nibble
