// The program: finds the verb, checks its words, runs it, prints one line if it fails.
#include <csignal>
#include <cstdlib>

#include "backend/cuda/cuda_backend.h"
#include "cli/serve_help.h"
#include "cli/verb.h"
#include "cli/vllm_flags.h"

namespace nibble {
namespace {

constexpr const Verb* kVerbs[] = {
    &kQuantizeVerb, &kVerifyVerb, &kInspectVerb, &kConvertVerb, &kRenderVerb, &kRunVerb,
    &kChatVerb,     &kScoreVerb,  &kServeVerb,   &kConnectVerb, &kSynthVerb,  &kPlanVerb,
    &kDoctorVerb,   &kPullVerb,   &kLsVerb,      &kRmVerb,      &kShowVerb,   &kPushVerb};

std::optional<std::string> environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

std::string overview() {
  std::string text =
      "nibble: quantizes Qwen3.5/3.6 checkpoints to NVFP4 and serves them\n\nUsage: nibble VERB "
      "...\n\n";
  for (const Verb* verb : kVerbs) {
    std::string left = concat("  ", verb->name, " ", verb->positionals);
    left.resize(std::max<size_t>(left.size() + 2, 32), ' ');
    text += concat(left, verb->summary, "\n");
  }
  return text +
         "\n`nibble VERB --help` lists the options of one; `nibble --version` prints the version "
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

const Verb* find_verb(std::string_view name) {
  for (const Verb* verb : kVerbs)
    if (verb->name == name) return verb;
  return nullptr;
}

int unknown_verb(Terminal& terminal, std::string_view name) {
  std::vector<std::string_view> names;
  for (const Verb* verb : kVerbs) names.push_back(verb->name);
  const auto near = nearest_name(name, names);
  std::string advice = "`nibble --help` lists the verbs";
  if (!near.empty()) advice = concat("did you mean ", near, "?");
  if (name.starts_with("--") || name.find('/') != name.npos)  // arguments of vLLM's image
    advice = concat("the verb stands first: nibble serve ", name, " ...");
  return fail(terminal, "nibble",
              make_error(ErrorCode::invalid_argument,
                         {.what = concat("unknown verb \"", name, "\""), .advice = advice}),
              kExitUsage);
}

int run(const std::vector<std::string>& words) {
  Terminal terminal;
  if (words.empty()) {
    terminal.err(overview());
    return kExitUsage;
  }
  if (words[0] == "--help" || words[0] == "-h" || words[0] == "help")
    return terminal.out(overview()).ok() ? kExitOk : kExitFailure;
  if (words[0] == "--version" || words[0] == "version")
    return terminal.out(concat("nibble ", NIBBLE_VERSION, "\nCUDA code: ", describe_cuda_code(),
                               "\n"))
                   .ok()
               ? kExitOk
               : kExitFailure;
  const Verb* verb = find_verb(words[0]);
  if (verb == nullptr) return unknown_verb(terminal, words[0]);
  const std::span<const std::string> rest = std::span(words).subspan(1);
  for (const auto& word : rest) {
    if (word == "--") break;
    if (word == "--help" || word == "-h" || word == "--help=all") {
      const HelpLength length = word == "--help=all" ? HelpLength::all : HelpLength::most_used;
      const std::string text = verb == &kServeVerb ? serve_help(length) : help_text(*verb);
      return terminal.out(text).ok() ? kExitOk : kExitFailure;
    }
    if (word == "--help=vllm" && !verb->foreign.empty())
      return terminal.out(vllm_flag_table()).ok() ? kExitOk : kExitFailure;
  }
  const std::string who = concat("nibble ", verb->name);
  const auto arguments = parse_arguments(*verb, rest, environment);
  if (!arguments.ok()) return fail(terminal, who, arguments.error(), kExitUsage);
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
  std::signal(SIGPIPE, SIG_IGN);
  const int code = nibble::run(std::vector<std::string>(argv + 1, argv + argc));
  // A kernel may still run on such a card, and nothing that ends at exit may wait for it.
  if (code == nibble::kExitDevice) std::_Exit(code);
  return code;
}
