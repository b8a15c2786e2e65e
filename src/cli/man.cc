// nibble man: the manual page of the program, and the same tables as a page of Markdown.
#include "cli/manual/manual_page.h"
#include "cli/manual/options_page.h"
#include "cli/verb.h"

namespace nibble {
namespace {

constexpr Option kOptions[] = {
    {"markdown", "", "false", "the options of all verbs in Markdown, as docs/options.md has them"},
};

Result<int> run(const Arguments& arguments, Terminal& terminal) {
  TRY(terminal.out(arguments.enabled("markdown") ? options_page() : manual_page()));
  return kExitOk;
}

}  // namespace

const Verb kManVerb = {.name = "man",
                       .positionals = "",
                       .summary = "Prints the manual page: nibble man | man -l -",
                       .options = kOptions,
                       .run = run};

}  // namespace nibble
