// Tables of answers, each fed whole, byte by byte, and cut at random: the events joined per kind
// must be the same.
#include "server/decode/output_parser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <random>
#include <variant>

namespace nibble {
namespace {

using Piece = std::variant<std::string, Marker>;
constexpr Marker kThink = Marker::think_begin;
constexpr Marker kEndThink = Marker::think_end;
constexpr Marker kCall = Marker::tool_begin;
constexpr Marker kEndCall = Marker::tool_end;

ToolSchemas schemas() {
  return ToolSchemas(parse_json(R"([
    {"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{
      "s":{"type":"string"}, "i":{"type":"integer"}, "x":{"type":"number"},
      "b":{"type":"boolean"}, "o":{"type":"object"}, "a":{"type":"array"},
      "u":{"anyOf":[{"type":"string"},{"type":"integer"}]}, "n":{"type":["integer","null"]},
      "e":{"enum":["p","q"]}, "free":{} }}}},
    {"type":"function","function":{"name":"g"}}])",
                                "tools")
                         .value());
}

/// "R:.. C:.. [0 name args!]": reasoning, content, calls; ! marks a complete one.
std::string summary(const std::vector<OutputEvent>& events) {
  std::string reasoning;
  std::string content;
  std::vector<std::string> calls;
  for (const OutputEvent& event : events) {
    switch (event.kind) {
      case OutputEvent::Kind::reasoning:
        reasoning += event.text;
        break;
      case OutputEvent::Kind::content:
        content += event.text;
        break;
      case OutputEvent::Kind::tool_begin:
        EXPECT_EQ(static_cast<size_t>(event.tool), calls.size());
        calls.push_back(event.text + " ");
        break;
      case OutputEvent::Kind::tool_arguments:
        calls.at(static_cast<size_t>(event.tool)) += event.text;
        break;
      case OutputEvent::Kind::tool_end:
        calls.at(static_cast<size_t>(event.tool)) += "!";
        break;
    }
  }
  std::string out = concat("R:", reasoning, "|C:", content);
  for (const std::string& call : calls) out += concat("|", call);
  return out;
}

std::string run(const std::vector<Piece>& pieces, StartIn start, ParseTools tools,
                std::mt19937* cuts) {
  OutputParser parser(start, tools, schemas());
  std::vector<OutputEvent> events;
  const auto collect = [&] {
    for (OutputEvent& event : parser.take()) events.push_back(std::move(event));
  };
  for (const Piece& piece : pieces) {
    if (const Marker* marker = std::get_if<Marker>(&piece)) {
      parser.marker(*marker);
      collect();
      continue;
    }
    std::string_view text = std::get<std::string>(piece);
    while (!text.empty()) {
      const size_t size = cuts == nullptr ? text.size() : 1 + (*cuts)() % 5;
      parser.text(text.substr(0, size));
      text.remove_prefix(std::min(size, text.size()));
      collect();
    }
  }
  parser.finish();
  collect();
  return summary(events);
}

struct Case {
  const char* name;
  std::vector<Piece> pieces;
  const char* expected;
  StartIn start = StartIn::content;
  ParseTools tools = ParseTools::yes;
};

const Case kCases[] = {
    {"plain", {"Hello world.\n"}, "R:|C:Hello world.\n"},
    {"empty", {}, "R:|C:"},
    {"thinking",
     {"I think\nso.\n", kEndThink, "\n\nYes."},
     "R:I think\nso.|C:Yes.",
     StartIn::reasoning},
    {"thinking cut short", {"I think\n"}, "R:I think\n|C:", StartIn::reasoning},
    {"empty thinking", {"\n", kEndThink, "\n\nYes"}, "R:|C:Yes", StartIn::reasoning},
    {"repeated think tag",
     {kThink, "\nhm\n", kEndThink, "\n\nYes"},
     "R:hm|C:Yes",
     StartIn::reasoning},
    {"model opens thinking itself", {kThink, "\nhm\n", kEndThink, "\n\nYes"}, "R:hm|C:Yes"},
    {"think tag later is text",
     {"a ", kThink, " b ", kEndThink, " c"},
     "R:|C:a <think> b </think> c"},
    {"spelled tag in reasoning is text",
     {"a </think> b", kEndThink, "c"},
     "R:a </think> b|C:c",
     StartIn::reasoning},
    {"spelled call tag is text", {"use <tool_call> so"}, "R:|C:use <tool_call> so"},
    {"one call",
     {"Let me see.\n\n", kCall, "\n<function=f>\n<parameter=s>\nhi\n</parameter>\n</function>\n",
      kEndCall},
     "R:|C:Let me see.|f {\"s\": \"hi\"}!"},
    {"call without arguments", {kCall, "\n<function=g>\n</function>\n", kEndCall}, "R:|C:|g {}!"},
    {"two calls",
     {kCall, "\n<function=g>\n</function>\n", kEndCall, "\n", kCall,
      "\n<function=f>\n<parameter=i>\n7\n</parameter>\n</function>\n", kEndCall},
     "R:|C:|g {}!|f {\"i\": 7}!"},
    {"two functions in one call",
     {kCall, "<function=g></function>\n<function=g></function>", kEndCall},
     "R:|C:|g {}!|g {}!"},
    {"types",
     {kCall,
      "\n<function=f>\n<parameter=i>\n-3\n</parameter>\n<parameter=x>\n1.50\n</parameter>\n"
      "<parameter=b>\nTrue\n</parameter>\n<parameter=o>\n{\"k\": [1, 2]}\n</parameter>\n"
      "<parameter=a>\n[]\n</parameter>\n<parameter=u>\n12\n</parameter>\n<parameter=n>\nNone\n"
      "</parameter>\n<parameter=e>\nq\n</parameter>\n<parameter=free>\n[1]\n</parameter>\n"
      "<parameter=unknown>\n5\n</parameter>\n<parameter=s>\n42\n</parameter>\n</function>\n",
      kEndCall},
     "R:|C:|f {\"i\": -3, \"x\": 1.50, \"b\": true, \"o\": {\"k\":[1,2]}, \"a\": [], \"u\": 12, "
     "\"n\": null, \"e\": \"q\", \"free\": [1], \"unknown\": \"5\", \"s\": \"42\"}!"},
    {"values that are not what is declared become strings",
     {kCall,
      "<function=f><parameter=i>\nmany\n</parameter><parameter=o>\n[1]\n</parameter>"
      "<parameter=b>\n1\n</parameter></function>",
      kEndCall},
     "R:|C:|f {\"i\": \"many\", \"o\": \"[1]\", \"b\": \"1\"}!"},
    {"a whole number is a number",
     {kCall, "<function=f><parameter=x>\n3\n</parameter></function>", kEndCall},
     "R:|C:|f {\"x\": 3}!"},
    {"one newline at each end is not part of the value",
     {kCall, "<function=f><parameter=s>\n\n  x\n\n</parameter></function>", kEndCall},
     "R:|C:|f {\"s\": \"\\n  x\\n\"}!"},
    {"value without newlines",
     {kCall, "<function=f><parameter=s>x</parameter></function>", kEndCall},
     "R:|C:|f {\"s\": \"x\"}!"},
    {"empty values",
     {kCall, "<function=f><parameter=s>\n</parameter><parameter=e></parameter></function>",
      kEndCall},
     "R:|C:|f {\"s\": \"\", \"e\": \"\"}!"},
    {"markup and quotes in a value",
     {kCall,
      "<function=f><parameter=s>\nif (a < b && c > d) \"<p>\\n</p>\" </param\n\n<para\n"
      "</parameter></function>",
      kEndCall},
     "R:|C:|f {\"s\": \"if (a < b && c > d) \\\"<p>\\\\n</p>\\\" </param\\n\\n<para\"}!"},
    {"a parameter tag inside a line is text",
     {kCall, "<function=f><parameter=s>\na <parameter=b> c </function>\n</parameter></function>",
      kEndCall},
     "R:|C:|f {\"s\": \"a <parameter=b> c </function>\"}!"},
    {"missing end of parameter",
     {kCall, "<function=f>\n<parameter=s>\nhi\n<parameter=i>\n3\n</function>\n", kEndCall},
     "R:|C:|f {\"s\": \"hi\", \"i\": 3}!"},
    {"missing everything at the end",
     {kCall, "\n<function=f>\n<parameter=s>\nhi\n", kEndCall},
     "R:|C:|f {\"s\": \"hi\"}!"},
    {"missing end of function",
     {kCall, "\n<function=f>\n<parameter=s>\nhi\n</parameter>\n", kEndCall},
     "R:|C:|f {\"s\": \"hi\"}!"},
    {"repeated parameter: the first counts",
     {kCall,
      "<function=f><parameter=s>a</parameter><parameter=s>b</parameter><parameter=i>1</parameter>"
      "</function>",
      kEndCall},
     "R:|C:|f {\"s\": \"a\", \"i\": 1}!"},
    {"bare function",
     {"Well.\n<function=f>\n<parameter=s>\nhi\n</parameter>\n</function>\n"},
     "R:|C:Well.|f {\"s\": \"hi\"}!"},
    {"function in the middle of a line is text",
     {"write <function=f> like that"},
     "R:|C:write <function=f> like that"},
    {"almost a function", {"<func\n<functional>"}, "R:|C:<func\n<functional>"},
    {"half a function's tag before a call is text",
     {"a\n<fun", kCall, "<function=g></function>", kEndCall},
     "R:|C:a\n<fun|g {}!"},
    {"call that is none",
     {"a", kCall, "\nhello", kEndCall, "b"},
     "R:|C:a<tool_call>\nhello</tool_call>b"},
    {"call without a name",
     {kCall, "<function=>", kEndCall},
     "R:|C:<tool_call><function=></tool_call>"},
    {"stray end of call", {"a", kEndCall, "b"}, "R:|C:a</tool_call>b"},
    {"call inside reasoning ends it",
     {"I will call.\n", kCall, "\n<function=g>\n</function>\n", kEndCall},
     "R:I will call.|C:|g {}!",
     StartIn::reasoning},
    {"call tag inside reasoning without a function stays reasoning",
     {"the ", kCall, " tag", kEndThink, "\n\nok"},
     "R:the <tool_call> tag|C:ok",
     StartIn::reasoning},
    {"cut short in a string",
     {kCall, "\n<function=f>\n<parameter=s>\nhello wor"},
     "R:|C:|f {\"s\": \"hello wor"},
    {"cut short in a number", {kCall, "<function=f><parameter=i>\n12"}, "R:|C:|f {\"i\": "},
    {"cut short before the name", {"x ", kCall, "\n<func"}, "R:|C:x <tool_call>\n<func"},
    {"cut short after a parameter",
     {kCall, "<function=f><parameter=i>\n12\n</parameter>\n"},
     "R:|C:|f {\"i\": 12"},
    {"think tags in an argument are text",
     {kCall, "<function=f><parameter=s>\na", kEndThink, "b", kCall, "c\n</parameter></function>",
      kEndCall},
     "R:|C:|f {\"s\": \"a</think>b<tool_call>c\"}!"},
    {"content after a call",
     {kCall, "<function=g></function>", kEndCall, "\n\nDone."},
     "R:|C:\n\nDone.|g {}!"},
    {"without tools calls are text",
     {"a ", kCall, "\n<function=f>\n</function>\n", kEndCall, "\n<function=g>"},
     "R:|C:a <tool_call>\n<function=f>\n</function>\n</tool_call>\n<function=g>",
     StartIn::content,
     ParseTools::no},
    {"accents and emoji",
     {kCall, "<function=f><parameter=s>\ncafé 🙂\n</parameter></function>", kEndCall},
     "R:|C:|f {\"s\": \"café 🙂\"}!"},
};

TEST(OutputParser, SplitsEachAnswerHoweverItIsCut) {
  std::mt19937 random(1);
  for (const Case& c : kCases) {
    EXPECT_EQ(run(c.pieces, c.start, c.tools, nullptr), c.expected) << c.name;
    for (int round = 0; round < 30; ++round)
      ASSERT_EQ(run(c.pieces, c.start, c.tools, &random), c.expected) << c.name << ", cut";
  }
}

TEST(OutputParser, StreamsStringArgumentsAsTheyCome) {
  OutputParser parser(StartIn::content, ParseTools::yes, schemas());
  parser.marker(kCall);
  parser.text("<function=f><parameter=s>\nhello ");
  parser.text("world");
  const auto events = parser.take();
  EXPECT_EQ(summary(events), "R:|C:|f {\"s\": \"hello world");
  EXPECT_EQ(parser.complete_calls(), 0);
}

TEST(OutputParser, HoldsBackWhatMayBecomeATag) {
  OutputParser parser(StartIn::content, ParseTools::yes, schemas());
  parser.text("one \n\n");
  EXPECT_EQ(summary(parser.take()), "R:|C:one");
  parser.text("<functio");
  EXPECT_EQ(summary(parser.take()), "R:|C:");
  parser.text("nal>");
  EXPECT_EQ(summary(parser.take()), "R:|C: \n\n<functional>");
}

TEST(OutputParser, TakesLinearTime) {
  const auto seconds = [](std::string_view unit, size_t bytes, bool in_value) {
    std::string text;
    while (text.size() < bytes) text += unit;
    OutputParser parser(StartIn::content, ParseTools::yes, schemas());
    parser.marker(kCall);
    if (in_value)
      parser.text("<function=f><parameter=o>\n");
    else
      parser.text("<function=f>\n");
    const std::clock_t start = std::clock();
    parser.text(text);
    parser.finish();
    return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  };
  // Eight times the text: 8 times the time, 64 times if it were quadratic. A floor for the clock.
  constexpr size_t kBytes = 1 << 17;
  constexpr double kClockSeconds = 0.01;
  for (const char* unit : {"<", "<parameter=", "<parameter=k>", "\n", "</function>\n<function=f>",
                           "<parameter=s>\n</parameter>", "</parameter", "\n<func"})
    for (const bool in_value : {false, true})
      EXPECT_LT(seconds(unit, 8 * kBytes, in_value),
                24 * std::max(seconds(unit, kBytes, in_value), kClockSeconds))
          << unit;
}

}  // namespace
}  // namespace nibble
