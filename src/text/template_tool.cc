// A test tool: one JSON request per line on standard input, one JSON answer per line on standard
// output, so that a Python oracle can render thousands of prompts in one process. Not part of the
// program.
//
//   {"compile": NAME, "source": TEXT, "special_tokens": {...}}   -> {} or {"error": MESSAGE}
//   {"render": NAME, "messages": [...], "tools": ..., "documents": ..., "kwargs": {...},
//    "add_generation_prompt": BOOL, "now": SECONDS, "prepare": BOOL}
//                                 -> {"text": TEXT, "pieces": [["t"|"u", TEXT] ...]} or {"error":
//                                 ...}
#include <cstdio>
#include <iostream>
#include <map>

#include "text/chat_template.h"

namespace nibble {
namespace {

using Templates = std::map<std::string, ChatTemplate>;

Json member(const Json& request, std::string_view key) {
  const Json* found = request.find(key);
  return found != nullptr ? *found : Json();
}

Result<Json> compile(const Json& request, Templates& templates) {
  const std::string& name = request.find("compile")->as_string();
  auto compiled = TRY(ChatTemplate::compile(member(request, "source").as_string(), name,
                                            {.special_tokens = member(request, "special_tokens")}));
  templates.insert_or_assign(name, std::move(compiled));
  return Json(Json::Object{});
}

Result<Json> render(const Json& request, const Templates& templates) {
  TemplateInput input;
  input.messages = member(request, "messages");
  input.tools = member(request, "tools");
  input.documents = member(request, "documents");
  input.kwargs = member(request, "kwargs");
  const Json add = member(request, "add_generation_prompt");
  input.generation_prompt =
      add.is_bool() && add.as_bool() ? GenerationPrompt::add : GenerationPrompt::omit;
  const Json now = member(request, "now");
  if (now.is_int()) input.now = std::chrono::local_seconds(std::chrono::seconds(now.as_int()));
  const Json prepare = member(request, "prepare");
  if (prepare.is_bool() && prepare.as_bool()) {
    input.messages = TRY(prepare_messages(input.messages));
  }
  const RenderedPrompt prompt =
      TRY(templates.at(member(request, "render").as_string()).render(input));
  Json pieces{Json::Array{}};
  for (const TextPiece& piece : prompt.pieces) {
    const char* origin = piece.origin == Origin::from_user ? "u" : "t";
    pieces.push_back(Json(Json::Array{Json(origin), Json(piece.text)}));
  }
  Json answer;
  answer.set("text", Json(prompt.flat()));
  answer.set("pieces", std::move(pieces));
  return answer;
}

Result<Json> answer_to(const std::string& line, Templates& templates) {
  const Json request = TRY(parse_json(line, "request"));
  return request.find("compile") != nullptr ? compile(request, templates)
                                            : render(request, templates);
}

}  // namespace
}  // namespace nibble

int main() {
  nibble::Templates templates;
  for (std::string line; std::getline(std::cin, line);) {
    const auto answer = nibble::answer_to(line, templates);
    nibble::Json out;
    if (!answer.ok()) out.set("error", nibble::Json(answer.error().message));
    const std::string text = (answer.ok() ? answer.value() : out).dump() + "\n";
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
  return 0;
}
