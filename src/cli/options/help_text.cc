// The help of a verb: its head, the rows of its options, those of every verb.
#include <algorithm>

#include "cli/verb.h"

namespace nibble {

std::string help_head(const Verb& verb) {
  return concat("nibble ", verb.name, verb.positionals.empty() ? "" : " ", verb.positionals,
                verb.options.empty() ? "" : " [options]", "\n\n", verb.summary, "\n");
}

std::string option_rows(std::span<const Option> options) {
  std::string text;
  for (const auto& option : options) {
    std::string left = concat("  --", option.name, option.value.empty() ? "" : " ", option.value,
                              option.form == OptionForm::several ? " ..." : "");
    left.resize(std::max<size_t>(left.size() + 2, 32), ' ');
    text +=
        concat(left, option.help,
               option.fallback.empty() ? std::string() : concat(" [", option.fallback, "]"), "\n");
  }
  return text;
}

std::string foreign_help(const Verb& verb) {
  if (verb.foreign.empty()) return {};
  return concat("vLLM's flags are known too: `nibble ", verb.name,
                " --help=vllm` says of each whether it is honoured, accepted or refused, and "
                "why.\n");
}

std::string common_help() {
  return concat("\nOptions of every verb:\n", option_rows(kCommonOptions),
                "  --help[=KEYWORD]              this text; with a keyword, the options whose name "
                "or help has it\n");
}

std::string help_text(const Verb& verb) {
  const std::string foreign = foreign_help(verb);
  return concat(
      help_head(verb),
      verb.options.empty() ? "" : "\nOptions (each also as NIBBLE_<NAME> in the environment):\n",
      option_rows(verb.options), common_help(), foreign.empty() ? "" : "\n", foreign);
}

}  // namespace nibble
