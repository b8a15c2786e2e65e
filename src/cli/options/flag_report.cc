// Options and foreign flags, one line each.
#include "cli/options/flag_report.h"

#include <algorithm>

namespace nibble {

namespace {

bool off(const Option& option, const Arguments& arguments) {
  return option.value.empty() && !arguments.enabled(option.name);
}

std::string as_given(const Option& option, const Arguments& arguments) {
  std::string value =
      option.secrecy == OptionSecrecy::secret ? "(hidden)" : *arguments.text(option.name);
  if (option.form == OptionForm::several) std::ranges::replace(value, ',', ' ');
  if (arguments.source(option.name) == ValueSource::environment)
    return concat(environment_name(option.name), "=", value);
  if (arguments.source(option.name) == ValueSource::file)
    return concat(arguments.origin(option.name), ": ", option.name, " = ", value);
  if (off(option, arguments)) return concat("--no-", option.name);
  return concat("--", option.name, option.value.empty() ? "" : concat(" ", value));
}

}  // namespace

std::string flag_report(const Verb& verb, const Arguments& arguments) {
  std::string text;
  for (const Option& option : verb.options)
    if (arguments.given(option.name))
      text += concat(as_given(option, arguments), ": honoured",
                     off(option, arguments) ? ", switched off" : "", " (", option.help, ")\n");
  for (const ForeignFlag& flag : verb.foreign)
    if (arguments.given(flag.option.name))
      text +=
          concat(as_given(flag.option, arguments), ": accepted, not needed: ", flag.accepted, "\n");
  return text;
}

}  // namespace nibble
