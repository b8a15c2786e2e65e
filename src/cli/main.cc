// The program: finds the verb, checks its words, runs it, prints one line if it fails.
#include <csignal>
#include <cstdlib>

#include "backend/cuda/cuda_backend.h"
#include "cli/options/config_file.h"
#include "cli/options/option_search.h"
#include "cli/options/settings_report.h"
#include "cli/serving/serve_help.h"
#include "cli/serving/vllm_flags.h"
#include "cli/verb.h"
#include "grammar/structure_worker.h"

namespace nibble {
namespace {

std::optional<std::string> environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

std::string overview() {
  std::string text =
      "nibble: quantizes Qwen3.5/3.6 checkpoints to NVFP4 and serves them\n\nUsage: nibble VERB "
      "...\n\n";
  for (const Verb* verb : all_verbs()) {
    std::string left = concat("  ", verb->name, " ", verb->positionals);
    left.resize(std::max<size_t>(left.size() + 2, 32), ' ');
    text += concat(left, verb->summary, "\n");
  }
  return text +
         "\n`nibble VERB --help` lists the options of one, `--help=KEYWORD` those whose name or "
         "help "
         "has a word; `nibble --version` prints the version "
         "and the CUDA targets.\n"
         "Results go to standard output, everything else to standard error.\n"
         "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 the card failed, 130 interrupted.\n";
}

/// An error of several lines is several errors.
int fail(Terminal& terminal, std::string_view who, const Error& error, int code) {
  std::string text;
  for (const char c : concat(who, ": ", error.message))
    text += c == '\n' ? concat("\n", who, ": ") : std::string(1, c);
  terminal.err(text + "\n");
  return code;
}

/// The verbs whose first word is `name`, a line each; empty if there are none.
std::string verbs_below(std::string_view name) {
  std::string text;
  for (const auto& [word, verb] : second_words(name))
    text += concat("nibble ", verb->name, " ", verb->positionals, ": ", verb->summary, "\n");
  return text;
}

int unknown_verb(Terminal& terminal, std::string_view name) {
  const auto near = nearest_name(name, first_words());
  std::string advice = "`nibble --help` lists the verbs";
  if (!near.empty()) advice = concat("did you mean ", near, "?");
  if (name.starts_with("--") || name.find('/') != name.npos)  // arguments of vLLM's image
    advice = concat("the verb stands first: nibble serve ", name, " ...");
  return fail(terminal, "nibble",
              make_error(ErrorCode::invalid_argument,
                         {.what = concat("unknown verb \"", name, "\""), .advice = advice}),
              kExitUsage);
}

/// The text that `word` of a command asks for about the verb's options; empty if it asks nothing.
std::optional<Result<std::string>> help_for(const Verb& verb, std::string_view word) {
  constexpr std::string_view kKeyword = "--help=";
  const bool serve = &verb == &kServeVerb;
  if (word == "--help" || word == "-h")
    return serve ? serve_help(HelpLength::most_used) : help_text(verb);
  if (word == "--help=all") return serve ? serve_help(HelpLength::all) : help_text(verb);
  if (word == "--help=vllm" && !verb.foreign.empty()) return vllm_flag_table();
  if (word.starts_with(kKeyword)) return search_options(verb, word.substr(kKeyword.size()));
  return std::nullopt;
}

int print(Terminal& terminal, std::string_view who, const Result<std::string>& text) {
  if (!text.ok()) return fail(terminal, who, text.error(), kExitUsage);
  return terminal.out(text.value()).ok() ? kExitOk : kExitFailure;
}

/// The command that has no verb, only a question about the program.
std::optional<Result<std::string>> help_for(std::string_view word) {
  constexpr std::string_view kKeyword = "--help=";
  if (word == "--help" || word == "-h" || word == "help") return overview();
  if (word.starts_with(kKeyword)) return search_all_options(word.substr(kKeyword.size()));
  if (word == "--version" || word == "version")
    return concat("nibble ", NIBBLE_VERSION, "\nCUDA code: ", describe_cuda_code(), "\n");
  return std::nullopt;
}

/// Words that begin with no verb: a first word that several verbs share lists them.
int no_verb(Terminal& terminal, const std::vector<std::string>& words) {
  const std::string below = verbs_below(words[0]);
  if (below.empty()) return unknown_verb(terminal, words[0]);
  if (words.size() > 1 && (words[1] == "--help" || words[1] == "-h"))
    return terminal.out(below).ok() ? kExitOk : kExitFailure;
  terminal.err(below);
  return kExitUsage;
}

int run(const std::vector<std::string>& words) {
  Terminal terminal({"/proc/self/exe", kStructureWorkerWord});
  if (words.empty()) {
    terminal.err(overview());
    return kExitUsage;
  }
  if (const auto text = help_for(words[0])) return print(terminal, "nibble", *text);
  const Verb* verb = find_verb(words);
  if (verb == nullptr) return no_verb(terminal, words);
  const std::string who = concat("nibble ", verb->name);
  const auto rest = std::span(words).subspan(verb->name.find(' ') == verb->name.npos ? 1 : 2);
  for (const auto& word : rest) {
    if (word == "--") break;
    if (const auto text = help_for(*verb, word)) return print(terminal, who, *text);
  }
  const ConfigSettings config = read_config(*verb, rest, environment);
  const auto arguments = parse_arguments(*verb, rest, environment, config);
  if (!arguments.ok()) return fail(terminal, who, arguments.error(), kExitUsage);
  if (arguments.value().enabled("print-config"))
    return print(terminal, who, settings_report(*verb, arguments.value()));
  const auto code = verb->run(arguments.value(), terminal);
  if (code.ok()) return code.value();
  const bool usage = code.error().code == ErrorCode::invalid_argument;
  const bool cancelled = code.error().code == ErrorCode::cancelled;
  return fail(terminal, who, code.error(),
              cancelled ? kExitInterrupted : (usage ? kExitUsage : kExitFailure));
}

}  // namespace
}  // namespace nibble

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == nibble::kStructureWorkerWord)
    return nibble::run_structure_worker();
  std::signal(SIGPIPE, SIG_IGN);
  const int code = nibble::run(std::vector<std::string>(argv + 1, argv + argc));
  // A kernel may still run on such a card, and nothing that ends at exit may wait for it.
  if (code == nibble::kExitDevice) std::_Exit(code);
  return code;
}
