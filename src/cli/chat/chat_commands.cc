// The commands of a chat, which begin with '/', in the style of Ollama's.
#include <algorithm>
#include <cstdlib>

#include "base/file.h"
#include "cli/chat/chat_session.h"
#include "cli/chat/image_file.h"
#include "cli/verb.h"

namespace nibble {

namespace {

constexpr uint64_t kFileBytesMax = uint64_t{64} << 20;

/// The first word, and what follows it.
std::pair<std::string_view, std::string_view> split(std::string_view words) {
  const size_t space = words.find(' ');
  if (space == std::string_view::npos) return {words, {}};
  std::string_view rest = words.substr(space);
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  return {words.substr(0, space), rest};
}

std::string list_of(std::span<const std::string_view> names) {
  std::string all;
  for (const auto& name : names) all += concat(all.empty() ? "" : ", ", name);
  return all;
}

/// "~/x" as a shell reads it.
std::string file_of(std::string_view words) {
  const char* home = std::getenv("HOME");
  if (words.starts_with("~/") && home != nullptr) return concat(home, words.substr(1));
  return std::string(words);
}

}  // namespace

struct ChatSession::Row {
  std::string_view name;
  std::string_view words;
  std::string_view help;  // empty: another name of the row above, not listed
  Done (ChatSession::*run)(std::string_view);
};

std::span<const ChatSession::Row> ChatSession::rows() {
  static constexpr Row kRows[] = {
      {"/set", "system TEXT", "set the system message; without TEXT remove it", &ChatSession::set},
      {"/set", "parameter NAME VALUE",
       "temperature, top_p, max_tokens, seed, stop, ...; "
       "VALUE default: as before",
       &ChatSession::set},
      {"/set", "think on|off|show|hide", "let the model think; show or fold its thinking",
       &ChatSession::set},
      {"/set", "profile NAME|none", "ask in the way of a profile", &ChatSession::set},
      {"/set", "verbose|quiet", "token counts and speed after each answer, or not",
       &ChatSession::set},
      {"/show", "", "the model, the settings, how full the context is", &ChatSession::show},
      {"/save", "FILE", "keep the conversation and its settings in a file", &ChatSession::save},
      {"/load", "FILE", "go on with one", &ChatSession::load},
      {"/retry", "", "another answer to the last question", &ChatSession::retry},
      {"/undo", "", "forget the last question and its answer", &ChatSession::undo},
      {"/edit", "", "the same, and the question is there to be changed", &ChatSession::edit},
      {"/image", "FILE", "show an image with the next question; without FILE forget those",
       &ChatSession::image},
      {"/clear", "", "forget the conversation", &ChatSession::clear},
      {"/help", "", "this list", &ChatSession::help},
      {"/?", "", "", &ChatSession::help},
      {"/system", "", "", &ChatSession::set_system},
      {"/think", "", "", &ChatSession::think},
      {"/nothink", "", "", &ChatSession::no_think},
      {"/stats", "", "", &ChatSession::stats},
  };
  return kRows;
}

Result<ChatSession::Next> ChatSession::command(std::string_view line) {
  const auto [name, words] = split(line);
  if (name == "/bye" || name == "/exit" || name == "/quit") return Next::leave;
  std::vector<std::string_view> names = {"/bye"};
  for (const Row& row : rows()) {
    if (row.name == name) {
      TRY((this->*row.run)(words));
      return Next::go_on;
    }
    names.push_back(row.name);
  }
  const std::string_view near = nearest_name(name, names);
  tell(concat("unknown command ", name, "; ",
              near.empty() ? "/help lists them" : concat("did you mean ", near, "?")));
  return Next::go_on;
}

Result<void> ChatSession::help(std::string_view) {
  for (const Row& row : rows()) {
    if (row.help.empty()) continue;
    std::string left = concat("  ", row.name, " ", row.words);
    constexpr size_t kColumn = 32;
    left.resize(std::max(left.size() + 1, kColumn), ' ');
    tell(concat(left, row.help));
  }
  tell(
      "  /bye                          leave (so do Ctrl-D, and Ctrl-C twice)\n"
      "  \"\"\"                           begins and ends a message of several lines\n"
      "Alt-Enter begins a new line of a message, and a paste of several lines is one message.\n"
      "Ctrl-C stops an answer.");
  return {};
}

Result<void> ChatSession::set(std::string_view words) {
  constexpr std::string_view kWords[] = {"system",  "parameter", "think",  "profile",
                                         "verbose", "quiet",     "nothink"};
  const auto [what, rest] = split(words);
  if (what == "system") return set_system(rest);
  if (what == "parameter") return set_parameter(rest);
  if (what == "think") return set_thinking(rest.empty() ? "on" : rest);
  if (what == "nothink") return set_thinking("off");
  if (what == "profile") return set_profile(rest);
  if (what == "verbose" || what == "quiet") {
    look_.verbosity = what == "verbose" ? Verbosity::verbose : Verbosity::quiet;
    tell(concat("statistics ", what == "verbose" ? "on" : "off"));
    return {};
  }
  // `/set temperature 1` is meant for a parameter.
  for (const auto& name : chat_parameters())
    if (what == name) return set_parameter(words);
  const std::string_view near = nearest_name(what, chat_parameters());
  tell(concat("/set: expected ", list_of(kWords), ", found \"", what, "\"",
              near.empty() ? "" : concat("; did you mean parameter ", near, "?")));
  return {};
}

Result<void> ChatSession::set_system(std::string_view text) {
  conversation_.system = text;
  tell(text.empty() ? "no system message" : "system message set");
  return {};
}

bool ChatSession::acceptable(const Conversation& changed) {
  // The server's own checks, on a request that is never run.
  Conversation brief = changed;
  brief.turns.clear();
  const auto parsed =
      parse_generation_request(Api::chat, brief.request("x").dump(), session_.served());
  const auto* error = std::get_if<ApiError>(&parsed);
  if (error != nullptr) tell(error->message);
  return error == nullptr;
}

Result<void> ChatSession::set_parameter(std::string_view words) {
  const auto [name, text] = split(words);
  const auto known = chat_parameters();
  if (std::ranges::find(known, name) == known.end()) {
    const std::string_view near = nearest_name(name, known);
    tell(concat(
        "/set parameter: unknown \"", name, "\"; ",
        near.empty() ? concat("there are ", list_of(known)) : concat("did you mean ", near, "?")));
    return {};
  }
  const std::string_view field = chat_parameter_field(name);
  Conversation changed = conversation_;
  if (text.empty() || text == "default") {
    std::erase_if(changed.parameters.as_object(),
                  [&](const Json::Member& member) { return member.key == field; });
    conversation_ = std::move(changed);
    tell(concat(name, " as before"));
    return {};
  }
  const auto value = parse_json(text, "the value");
  changed.parameters.set(field, value.ok() ? value.value() : Json(text));
  if (!acceptable(changed)) return {};
  conversation_ = std::move(changed);
  tell(concat(name, " = ", conversation_.parameters.find(field)->dump()));
  return {};
}

Result<void> ChatSession::set_thinking(std::string_view word) {
  if (word == "on" || word == "off") {
    conversation_.thinking = word == "on";
    tell(concat("thinking ", word));
  } else if (word == "show" || word == "hide") {
    look_.thinking = word == "show" ? Shown::whole : Shown::folded;
    tell(word == "show" ? "thinking is shown" : "thinking is folded");
  } else {
    tell(concat("/set think: expected on, off, show or hide, found \"", word, "\""));
  }
  return {};
}

Result<void> ChatSession::set_profile(std::string_view name) {
  const Profiles& profiles = session_.served().profiles;
  if (name == "none" || name.empty()) {
    conversation_.profile.clear();
    tell("no profile");
    return {};
  }
  if (profiles.find(name) == nullptr) {
    std::vector<std::string_view> names;
    for (const Profile& profile : profiles.all()) names.push_back(profile.name);
    tell(concat("/set profile: unknown \"", name, "\"; there are ", list_of(names)));
    return {};
  }
  conversation_.profile = name;
  tell(concat("profile ", name));
  return {};
}

Result<void> ChatSession::show(std::string_view) {
  const ServedModel& served = session_.served();
  const auto given = [](std::string_view text, std::string_view otherwise) {
    return text.empty() ? otherwise : text;
  };
  tell(concat("model       ", served.names.front(), "\n", "system      ",
              given(conversation_.system, "(none)"), "\n", "profile     ",
              given(conversation_.profile, "(none)")));
  std::string parameters;
  for (const auto& [key, value] : conversation_.parameters.as_object())
    parameters += concat(parameters.empty() ? "" : ", ", key, " ", value.dump());
  tell(concat("parameters  ", given(parameters, "(the model's)"), "\n", "thinking    ",
              !conversation_.thinking   ? "(the template's)"
              : *conversation_.thinking ? "on"
                                        : "off",
              look_.thinking == Shown::whole ? ", shown" : ", folded"));
  tell(concat("said        ", conversation_.turns.size(), " questions, ", context_used_, " of ",
              served.context_max, " tokens of context"));
  return {};
}

Result<void> ChatSession::save(std::string_view words) {
  if (words.empty()) {
    tell("/save FILE");
    return {};
  }
  const std::string path = file_of(words);
  const auto written = write_file_atomically(path, conversation_.dump().dump_pretty());
  tell(written.ok() ? concat("saved to ", path) : written.error().message);
  return {};
}

Result<void> ChatSession::load(std::string_view words) {
  if (words.empty()) {
    tell("/load FILE");
    return {};
  }
  const std::string path = file_of(words);
  const auto read = [&]() -> Result<Conversation> {
    const std::string text = TRY(read_text_file(path, kFileBytesMax));
    return Conversation::read(TRY(parse_json(text, path)), path);
  };
  auto loaded = read();
  if (!loaded.ok()) {
    tell(loaded.error().message);
  } else if (acceptable(loaded.value())) {
    conversation_ = std::move(loaded).value();
    context_used_ = 0;
    tell(concat("loaded ", conversation_.turns.size(), " questions and answers from ", path));
  }
  return {};
}

Result<void> ChatSession::retry(std::string_view) {
  if (conversation_.turns.empty()) {
    tell("nothing was asked yet");
    return {};
  }
  const Conversation::Turn last = conversation_.turns.back();
  conversation_.turns.pop_back();
  // A refused question keeps its old answer.
  if (!TRY(answered(last.question, last.images))) conversation_.turns.push_back(last);
  return {};
}

Result<void> ChatSession::undo(std::string_view) {
  if (conversation_.turns.empty()) {
    tell("nothing to forget");
    return {};
  }
  conversation_.turns.pop_back();
  tell("the last question and its answer are forgotten");
  return {};
}

Result<void> ChatSession::edit(std::string_view) {
  if (conversation_.turns.empty()) {
    tell("nothing was asked yet");
    return {};
  }
  const Conversation::Turn last = conversation_.turns.back();
  images_.insert(images_.begin(), last.images.begin(), last.images.end());
  TRY(undo({}));
  reader_.begin_with(last.question);
  return {};
}

Result<void> ChatSession::clear(std::string_view) {
  conversation_.turns.clear();
  images_.clear();
  context_used_ = 0;
  tell("forgotten");
  return {};
}

Result<void> ChatSession::image(std::string_view words) {
  const auto& intake = session_.served().images;
  if (!intake) {
    tell("/image: this model is given text alone");
    return {};
  }
  if (words.empty()) {
    tell(images_.empty() ? "/image FILE" : "the next question has no images");
    images_.clear();
    return {};
  }
  auto url = image_url_of(file_of(words), intake->options().limits.encoded_bytes_max);
  if (!url.ok()) {
    tell(url.error().message);
    return {};
  }
  const SentImage sent{.url = url.value()};
  const auto measured = intake->measure({&sent, 1}, Json());
  if (const auto* error = std::get_if<ApiError>(&measured)) {
    tell(error->message);
    return {};
  }
  images_.push_back(std::move(url).value());
  tell(concat("shown with the next question: ", words, ", ",
              std::get<std::vector<MeasuredImage>>(measured).front().rows(), " tokens"));
  return {};
}

Result<void> ChatSession::think(std::string_view) { return set_thinking("on"); }
Result<void> ChatSession::no_think(std::string_view) { return set_thinking("off"); }
Result<void> ChatSession::stats(std::string_view) {
  return set(look_.verbosity == Verbosity::verbose ? "quiet" : "verbose");
}

}  // namespace nibble
