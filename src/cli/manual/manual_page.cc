// The manual page: its own words, and a section of options for each verb.
#include "cli/manual/manual_page.h"

#include <cctype>

#include "cli/serving/serve_help.h"
#include "cli/verb.h"

namespace nibble {

namespace {

/// Text as roff takes it: no character of it is a command or is set as another one.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else if (c == '~')
      out += "\\(ti";
    else if (c == '^')
      out += "\\(ha";
    else if (c == '`')
      out += "\\(ga";
    else if (c == '\'')
      out += "\\(aq";
    else
      out += c;
  }
  if (out.starts_with('.')) out.insert(0, "\\&");
  return out;
}

std::string line(std::string_view text) { return concat(roff(text), "\n"); }

/// A tagged paragraph: \fB--name\fR \fIVALUE\fR, then its help.
std::string option_part(const Option& option) {
  std::string text = concat(".TP\n\\fB\\-\\-", roff(option.name), "\\fR");
  if (!option.value.empty()) text += concat(" \\fI", roff(option.value), "\\fR");
  if (option.form == OptionForm::several) text += " ...";
  text += concat("\n", roff(option.help));
  if (!option.fallback.empty()) text += concat(" [", roff(option.fallback), "]");
  return text + "\n";
}

const Option& option_called(const Verb& verb, std::string_view name) {
  const Option* option = find_option(verb, name);
  CHECK(option != nullptr, name);
  return *option;
}

std::string verb_part(const Verb& verb) {
  std::string text = concat(".SS \"nibble ", verb.name, verb.positionals.empty() ? "" : " ",
                            roff(verb.positionals), verb.options.empty() ? "" : " [options]",
                            "\"\n", roff(verb.summary), ".\n");
  if (&verb != &kServeVerb) {
    for (const Option& option : verb.options) text += option_part(option);
    return text;
  }
  for (const OptionGroup& group : serve_option_groups()) {
    text += concat(".PP\n\\fI", roff(group.title), "\\fR\n");
    for (const std::string_view name : group.names) text += option_part(option_called(verb, name));
  }
  return text;
}

constexpr std::string_view kFileExample = R"(.PP
.EX
[serve]
model = "Qwen/Qwen3.6\-35B\-A3B"
port = 9000
web = false
served\-model\-name = ["qwen", "default"]
speculative\-config = { method = "ngram" }
api\-key = { file = "/run/secrets/nibble" }
.EE
)";

std::string closing_sections() {
  return concat(
      ".SH CONFIGURATION FILE\n",
      line("A TOML file with a table for each verb, whose keys are the names of its options."),
      kFileExample, ".PP\n",
      line("A switch is true or false. An option that takes several words also takes a list, "
           "and one that takes JSON a table. A key for clients is never written there: the "
           "file names another one that holds it, a key on each line."),
      ".PP\n",
      line("It is the file of --config, else of NIBBLE_CONFIG, else the first that is there "
           "of nibble/config.toml in $XDG_CONFIG_HOME (or ~/.config) and in the folders of "
           "$XDG_CONFIG_DIRS (or /etc/xdg). A flag goes before the environment, the "
           "environment before the file, the file before the default; --print-config shows "
           "which one holds."),
      ".SH ENVIRONMENT\n",
      line("Each option is also NIBBLE_ and its name in capitals, with _ for -: "
           "NIBBLE_MAX_MODEL_LEN is --max-model-len. HF_HUB_CACHE, HF_HOME and "
           "XDG_CACHE_HOME say where downloaded models are; VLLM_API_KEY is a key where "
           "--api-key is not given."),
      ".SH EXIT STATUS\n",
      ".TP\n0\nThe work is done.\n.TP\n1\nThe work failed; the last line says why.\n",
      ".TP\n2\nThe words of the command are wrong.\n",
      ".TP\n3\nThe card failed while it served; start again.\n",
      ".TP\n130\nThe work was interrupted.\n.SH EXAMPLES\n",
      ".EX\nnibble quantize Qwen3.6\\-35B\\-A3B out/35b\nnibble serve out/35b \\-\\-port 8000\n",
      "nibble serve \\-\\-help=cache\n.EE\n");
}

}  // namespace

std::string manual_page() {
  std::string text =
      concat(".TH NIBBLE 1 ", NIBBLE_RELEASE_DATE, " \"nibble ", NIBBLE_VERSION,
             "\" \"User Commands\"\n.SH NAME\nnibble \\- quantizes Qwen3.5 and "
             "Qwen3.6 checkpoints to NVFP4 and serves them\n.SH SYNOPSIS\n"
             ".B nibble\n.I verb\n[\\fIargument\\fR ...] [\\fIoption\\fR ...]\n"
             ".SH DESCRIPTION\n",
             "Results go to standard output, everything else to standard error.\n", ".SH VERBS\n");
  for (const Verb* verb : all_verbs()) text += verb_part(*verb);
  text += ".SH OPTIONS OF EVERY VERB\n";
  for (const Option& option : kCommonOptions) text += option_part(option);
  text +=
      concat(".TP\n\\fB\\-\\-help\\fR[=\\fIKEYWORD\\fR]\n",
             roff("explains the options; with a keyword those whose name or help has it"), "\n");
  return text + closing_sections();
}

}  // namespace nibble
