// OutputParser: splits a growing answer into reasoning, content and tool calls, in the Qwen format:
//   reasoning</think>\n\ncontent<tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n
//   </parameter>\n</function>\n</tool_call>
// Tags arrive as markers, found by token id, never by text; only `<function=` and what is inside a
// call is text. The pieces of one kind, joined, do not depend on how the text was cut. Time is
// linear in the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/json.h"
#include "server/decode/tool_schema.h"

namespace nibble {

enum class Marker : uint8_t { think_begin, think_end, tool_begin, tool_end };
std::string_view marker_text(Marker marker);

struct OutputEvent {
  enum class Kind : uint8_t {
    reasoning,       // text
    content,         // text
    tool_begin,      // text is the function's name
    tool_arguments,  // text is a fragment of the arguments' JSON
    tool_end,        // the call is complete
  };
  Kind kind = Kind::content;
  std::string text;
  int32_t tool = 0;  // index of the call
  bool operator==(const OutputEvent&) const = default;
};

enum class StartIn : uint8_t { reasoning, content };
/// sound: calls follow a grammar, so that only </parameter> ends a value.
enum class ParseTools : uint8_t { no, yes, sound };

class OutputParser {
 public:
  /// `start`: where the prompt left off. With ParseTools::no calls stay text.
  OutputParser(StartIn start, ParseTools parse_tools, ToolSchemas schemas);

  void text(std::string_view piece);
  void marker(Marker marker);
  /// The end: releases what was held back; a call cut short stays without tool_end.
  void finish();
  std::vector<OutputEvent> take() { return std::exchange(events_, {}); }

  int32_t complete_calls() const { return complete_calls_; }
  /// Those that began with the tag and were none: their text is prose.
  int32_t malformed_calls() const { return malformed_calls_; }
  bool in_reasoning() const { return state_ == State::reasoning; }
  bool in_content() const { return state_ == State::content; }

 private:
  enum class State : uint8_t {
    reasoning,
    content,
    opened,      // after <tool_call>: expects <function=
    name,        // after <function=
    parameters,  // expects <parameter=, </function>, or the end of the call
    key,         // after <parameter=
    value,       // after <parameter=KEY>
    after_call,  // after </function>: expects </tool_call> or another <function=
  };

  CallText call_text() const {
    return parse_tools_ == ParseTools::sound ? CallText::held : CallText::free;
  }
  void advance();
  bool step();
  bool step_prose();
  bool step_opened();
  bool step_name();
  bool step_parameters();
  bool step_key();
  bool step_value();
  bool step_after_call();

  void emit(OutputEvent::Kind kind, std::string_view text);
  void emit_prose(std::string_view text);
  void emit_spaces();
  void leave_reasoning();
  void give_up_call();
  void give_up_unnamed_calls();
  void begin_argument();
  void end_value(size_t at);
  void end_call();
  void value_text(std::string_view text);

  State state_;
  State prose_state_;  // to return to when a call turns out to be text
  ParseTools parse_tools_;
  ToolSchemas schemas_;
  std::string buffer_;  // not yet understood
  size_t scanned_ = 0;  // of buffer_, in State::value: no terminator begins before it
  std::string spaces_;  // white space that is dropped if a tag follows
  bool at_line_start_ = true;
  bool skip_newlines_ = false;  // right after a think tag
  bool spoke_ = false;          // has emitted anything
  bool has_content_ = false;    // has emitted content
  bool by_marker_ = false;      // the call was opened by <tool_call>
  std::string function_;
  std::string key_;
  std::unordered_set<std::string> keys_;  // seen in this call
  ParameterKind kind_ = ParameterKind::text;
  bool value_begun_ = false;
  bool value_dropped_ = false;  // a repeated key
  int32_t calls_ = 0;
  int32_t complete_calls_ = 0;
  int32_t malformed_calls_ = 0;
  std::vector<OutputEvent> events_;
};

}  // namespace nibble
