// nibble chat: a conversation in the terminal. Answers on standard output, all else on standard
// error. Ctrl-C stops the answer; twice at the prompt, or /bye, leaves.
#include "cli/chat/chat_session.h"
#include "cli/chat/line_reader.h"
#include "cli/chat/local_session.h"
#include "cli/options/folders.h"
#include "cli/options/image_options.h"
#include "cli/quantizing/quantize_first.h"
#include "cli/serving/profiles_file.h"

namespace nibble {
namespace {

constexpr auto kOwnOptions = std::to_array<Option>({
    {"system", "TEXT", "", "system message of the conversation"},
    {"think", "", "true", "let the model think first, where its template can"},
    {"show-thinking", "", "true", "show the thinking, dimmed; else folded to a line"},
    kProfileOption,
    kProfilesOption,
    {"history", "", "true", "keep typed lines for the next session"},
    {"verbose", "", "", "token counts and speed after each answer"},
});

constexpr auto kOptions =
    joined_options(kOwnOptions, kSamplingOptions, kImageOptions, kTowerOptions, kEngineOptions,
                   kQuantizeFirstOptions, kModelOptions);

/// Empty: there is no place for it.
std::filesystem::path history_file() {
  const auto folder = user_folder("XDG_STATE_HOME", ".local/state");
  return folder.empty() ? folder : folder / "history";
}

/// Line after line, until somebody leaves.
Result<int> talk(ChatSession& chat, LineReader& reader, Terminal& terminal) {
  std::string line;
  bool interrupted_before = false;
  while (true) {
    const auto ending = reader.read("> ", line);
    if (ending == LineReader::Ending::interrupted) {
      terminal.err("\n");
      if (interrupted_before) return kExitOk;
      interrupted_before = true;
      terminal.err("Ctrl-C again, or /bye, leaves.\n");
      continue;
    }
    interrupted_before = false;
    if (ending == LineReader::Ending::end_of_input) {
      if (terminal.input_watcher() == Watcher::person) terminal.err("\n");
      return kExitOk;
    }
    if (line.empty()) continue;
    if (line[0] != '/')
      TRY(chat.say(line));
    else if (TRY(chat.command(line)) == ChatSession::Next::leave)
      return kExitOk;
  }
}

Result<int> run(const Arguments& arguments, Terminal& terminal) {
  Conversation conversation{.system = arguments.text("system").value_or(""),
                            .profile = arguments.text("profile").value_or("")};
  conversation.parameters = TRY(sampling_body(arguments));
  if (arguments.given("think")) conversation.thinking = arguments.enabled("think");
  ImageFlags images = TRY(read_image_flags(arguments));
  images.intake.videos.videos_max = 0;  // there is no command that shows one
  const auto folder = TRY(folder_to_load(arguments, terminal));
  const auto session = TRY(LocalSession::open(arguments, folder, images, terminal));
  if (!session->served().chat_template)
    return make_error(ErrorCode::unsupported, {.what = "this checkpoint has no chat template",
                                               .advice = "use `nibble run --raw`"});
  install_chat_interrupts();
  LineReader reader(terminal, arguments.enabled("history") ? history_file() : "");
  using Look = ChatSession;
  ChatSession chat(
      *session, terminal, reader, std::move(conversation),
      {.thinking = arguments.enabled("show-thinking") ? Look::Shown::whole : Look::Shown::folded,
       .verbosity =
           arguments.enabled("verbose") ? Look::Verbosity::verbose : Look::Verbosity::quiet});
  if (terminal.input_watcher() == Watcher::person)
    terminal.err("/help lists the commands, /bye leaves.\n");
  Result<int> code = talk(chat, reader, terminal);
  return end_of_verb("chat", session->engine().failure(), std::move(code), terminal);
}

}  // namespace

const Verb kChatVerb = {.name = "chat",
                        .positionals = "DIR",
                        .summary = "Holds a conversation in the terminal",
                        .options = kOptions,
                        .run = run};

}  // namespace nibble
