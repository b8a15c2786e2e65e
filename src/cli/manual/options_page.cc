// The page's own words, and a table for each verb; for `serve` one for each group.
#include "cli/manual/options_page.h"

#include "cli/serving/serve_help.h"
#include "cli/verb.h"

namespace nibble {

namespace {

constexpr std::string_view kHead = R"(# Options

These are all options of all verbs, as `nibble man --markdown` prints them from the table that the
program reads flags by. The same table gives `nibble VERB --help`, `--help=KEYWORD` (the options
whose name or help has that word), the manual page (`nibble man`) and the completion of bash, zsh
and fish (`nibble completion SHELL`).

## Where a value comes from

A flag goes before the environment, the environment before the configuration file, the file
before the default. `nibble VERB --print-config` prints each option with its value and where
that comes from, in the form of such a file, and ends; `serve --dry-run` says it of those that
are given.

- On the command line `--NAME VALUE` or `--NAME=VALUE`, a switch `--NAME` or `--no-NAME`. Names
  may have underscores, whole numbers a unit: `32K` is 32,768 and `25.6k` is 25,600.
- In the environment `NIBBLE_` and the name in capitals, with `_` for `-`:
  `NIBBLE_MAX_MODEL_LEN`.
- In the configuration file the name as a key in the table of the verb.

## The configuration file

`--config FILE`, else `NIBBLE_CONFIG`, else the first that is there of `nibble/config.toml` in
`$XDG_CONFIG_HOME` (`~/.config` if it is not set) and in the folders of `$XDG_CONFIG_DIRS`
(`/etc/xdg`). `--config=` reads none. It is TOML of at most 1 MiB:

```toml
[serve]
model = "Qwen/Qwen3.6-35B-A3B"               # the checkpoint, which is no flag on the command line
port = 9000                                  # a number, or a string such as "32K"
web = false                                  # a switch is true or false
served-model-name = ["qwen", "default"]      # several words
speculative-config = { method = "ngram" }    # what takes JSON takes a table
api-key = { file = "/run/secrets/nibble" }   # the keys stand in that file, one a line

[quantize]
recipe = "mixed"
```

An unknown key or verb, a wrong type and a wrong value are errors, a line each with the place
and the nearest name, all at once; tables of other verbs are checked too. A key never stands in
the file itself: it names another one of at most 64 KiB. Links are followed, as of every file
that is only read. Relative paths start at the folder where the program runs, as those of flags do.
)";

/// Text in a cell of a table.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

constexpr std::string_view kColumns = "| option | default | |\n|---|---|---|\n";

std::string row(const Option& option) {
  const std::string value = option.value.empty() ? "" : concat(" ", option.value);
  const std::string several = option.form == OptionForm::several ? " ..." : "";
  std::string text = concat("| `--", option.name, cell(value), several, "` | ");
  if (!option.fallback.empty()) text += concat("`", cell(option.fallback), "` ");
  text += concat("| ", cell(option.help));
  if (!option.alias.empty())
    text += concat("; also `", option.alias.starts_with('-') ? "" : "--", option.alias, "`");
  return text + " |\n";
}

std::string verb_part(const Verb& verb) {
  std::string text = concat("\n## nibble ", verb.name, "\n\n`nibble ", verb.name,
                            verb.positionals.empty() ? "" : " ", verb.positionals,
                            verb.options.empty() ? "" : " [options]", "`\n\n", verb.summary, ".\n");
  if (verb.options.empty()) return text;
  if (&verb != &kServeVerb) {
    text += concat("\n", kColumns);
    for (const Option& option : verb.options) text += row(option);
    return text;
  }
  for (const OptionGroup& group : serve_option_groups()) {
    text += concat("\n### ", group.title, "\n\n", kColumns);
    for (const std::string_view name : group.names)
      for (const Option& option : verb.options)
        if (option.name == name) text += row(option);
  }
  return text + "\nFlags of vLLM: [serving.md](serving.md#command-lines-of-vllm).\n";
}

}  // namespace

std::string options_page() {
  std::string text = concat(kHead, "\n## Options of every verb\n\n", kColumns);
  for (const Option& option : kCommonOptions) text += row(option);
  text += "| `--help[=KEYWORD]` | | explains the options, or those whose name or help has it |\n";
  for (const Verb* verb : all_verbs()) text += verb_part(*verb);
  return text;
}

}  // namespace nibble
