// nibble completion: the script that completes the program's options in a shell.
#include "cli/manual/completion.h"

#include "cli/verb.h"

namespace nibble {
namespace {

Result<int> run(const Arguments& arguments, Terminal& terminal) {
  const std::string& shell = arguments.positional(0);
  if (shell == "bash") {
    TRY(terminal.out(bash_completion()));
  } else if (shell == "zsh") {
    TRY(terminal.out(zsh_completion()));
  } else if (shell == "fish") {
    TRY(terminal.out(fish_completion()));
  } else {
    return make_error(ErrorCode::invalid_argument, {.what = "the shell",
                                                    .expected = "one of bash, zsh, fish",
                                                    .found = concat("\"", shell, "\"")});
  }
  return kExitOk;
}

}  // namespace

const Verb kCompletionVerb = {
    .name = "completion",
    .positionals = "bash|zsh|fish",
    .summary = "Prints the script that completes verbs, options and values in a shell",
    .options = {},
    .run = run};

}  // namespace nibble
