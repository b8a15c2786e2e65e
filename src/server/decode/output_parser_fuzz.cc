// Fuzz entry: an answer (bytes 1 to 4 stand for the four tags) cut in two ways gives the same
// events, and every complete call has arguments that are a JSON object, with a grammar or without.
#include <cstdint>
#include <string>
#include <string_view>

#include "server/decode/output_parser.h"

namespace nibble {
namespace {

struct Outcome {
  std::string prose[2];  // reasoning, content
  std::vector<std::string> names;
  std::vector<std::string> arguments;
  std::vector<bool> complete;
  bool operator==(const Outcome&) const = default;
};

Outcome parse(std::string_view text, size_t slice, StartIn start, ParseTools tools_read) {
  static const Json tools =
      parse_json(R"([{"type":"function","function":{"name":"f","parameters":{"properties":)"
                 R"({"s":{"type":"string"},"i":{"type":"integer"},"o":{"type":"object"}},)"
                 R"("patternProperties":{"^n":{"type":["null","string"]}}}}}])",
                 "tools")
          .value();
  OutputParser parser(start, tools_read, ToolSchemas(tools));
  Outcome outcome;
  const auto collect = [&] {
    for (const OutputEvent& event : parser.take()) {
      const auto at = static_cast<size_t>(event.tool);
      switch (event.kind) {
        case OutputEvent::Kind::reasoning:
        case OutputEvent::Kind::content:
          outcome.prose[event.kind == OutputEvent::Kind::content] += event.text;
          break;
        case OutputEvent::Kind::tool_begin:
          CHECK(at == outcome.names.size(), "call ", at);
          outcome.names.push_back(event.text);
          outcome.arguments.emplace_back();
          outcome.complete.push_back(false);
          break;
        case OutputEvent::Kind::tool_arguments:
          outcome.arguments.at(at) += event.text;
          break;
        case OutputEvent::Kind::tool_end:
          outcome.complete.at(at) = true;
          break;
      }
    }
  };
  for (size_t begin = 0; begin < text.size();) {
    if (text[begin] >= 1 && text[begin] <= 4) {
      parser.marker(static_cast<Marker>(text[begin] - 1));
      ++begin;
    } else {
      size_t end = begin;
      while (end < text.size() && end < begin + slice && (text[end] < 1 || text[end] > 4)) ++end;
      parser.text(text.substr(begin, end - begin));
      begin = end;
    }
    collect();
  }
  parser.finish();
  collect();
  return outcome;
}

}  // namespace
}  // namespace nibble

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nibble;
  std::string text(reinterpret_cast<const char*>(data), size);
  for (char& c : text)
    if (static_cast<unsigned char>(c) >= 0x80) c = '?';  // the detokenizer gives valid UTF-8
  for (const StartIn start : {StartIn::content, StartIn::reasoning})
    for (const ParseTools tools : {ParseTools::yes, ParseTools::sound}) {
      const Outcome whole = parse(text, text.size() + 1, start, tools);
      CHECK(whole == parse(text, 1, start, tools), "cut into bytes: ", text);
      CHECK(whole == parse(text, 7, start, tools), "cut into sevens: ", text);
      for (size_t i = 0; i < whole.names.size(); ++i) {
        if (!whole.complete[i]) continue;
        const auto arguments =
            parse_json(whole.arguments[i], "arguments",
                       {.depth_max = 2000, .duplicate_keys = DuplicateKeys::keep_last});
        CHECK(arguments.ok() && arguments.value().is_object(), whole.arguments[i]);
      }
    }
  return 0;
}
