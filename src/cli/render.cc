// nibble render: the exact prompt text of a conversation, nothing else on standard output.
#include <chrono>
#include <ctime>

#include "cli/options/folders.h"
#include "text/chat_template.h"

namespace nibble {
namespace {

constexpr Option kOptions[] = {
    {"messages", "FILE", "", "JSON: a list of messages, or a whole chat request"},
    {"tools", "FILE", "", "JSON: a list of tools; overrides the request's"},
    {"kwargs", "JSON", "", "template variables, e.g. '{\"enable_thinking\":false}'"},
    {"generation-prompt", "", "true", "end with the start of the assistant's turn"},
    kRevisionOption,
};

/// The wall clock where the user is, for templates that print the date.
std::chrono::local_seconds local_now() {
  const std::time_t now = std::time(nullptr);
  std::tm fields = {};
  ::localtime_r(&now, &fields);
  return std::chrono::local_seconds(std::chrono::seconds(::timegm(&fields)));
}

Result<int> run(const Arguments& arguments, Terminal& terminal) {
  if (!arguments.given("messages")) {
    return make_error(
        ErrorCode::invalid_argument,
        {.what = "--messages", .expected = "a file with the conversation", .found = "nothing"});
  }
  RenderRequest request{.source = TRY(first_folder(arguments, terminal, SnapshotNeeds::papers)),
                        .messages = *arguments.text("messages"),
                        .kwargs = arguments.text("kwargs").value_or("")};
  if (arguments.given("tools")) request.tools = *arguments.text("tools");
  if (!arguments.enabled("generation-prompt")) request.generation_prompt = GenerationPrompt::omit;
  request.now = local_now();
  const auto prompt = render_prompt(request);
  if (!prompt.ok()) {
    // A refusal by the template is a failure of the work, not a wrong command line.
    Error error = prompt.error();
    if (error.code == ErrorCode::invalid_argument) error.code = ErrorCode::corrupt;
    return error;
  }
  TRY(terminal.out(prompt.value().flat()));
  return kExitOk;
}

}  // namespace

const Verb kRenderVerb = {.name = "render",
                          .positionals = "DIR|TEMPLATE.jinja",
                          .summary = "Prints the exact prompt text of a conversation",
                          .options = kOptions,
                          .run = run};

}  // namespace nibble
