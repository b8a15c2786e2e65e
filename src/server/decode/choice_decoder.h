// ChoiceDecoder: the way from one choice's tokens to what the client sees: detokenize, cut at a
// stop string, split into reasoning, content and tool calls. Nothing that may yet change is
// released.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "server/decode/output_parser.h"
#include "server/decode/stop_strings.h"
#include "server/served_model.h"

namespace nibble {

/// no: think tags are text, as /v1/completions gives them.
enum class SplitReasoning : uint8_t { no, yes };

class ChoiceDecoder {
 public:
  struct Options {
    std::vector<std::string> stops;
    StopText stop_text = StopText::cut;
    int32_t stops_after = 0;  // tokens in whose text no stop string is looked for
    SplitReasoning split = SplitReasoning::yes;
    StartIn start = StartIn::content;
    ParseTools parse_tools = ParseTools::no;
    ToolSchemas schemas;
    SkipSpecial skip_special = SkipSpecial::yes;
  };
  /// `model` must outlive the decoder.
  ChoiceDecoder(const ServedModel& model, Options options);

  void push(int32_t token);
  /// The end of the tokens: everything held back is released.
  void finish();
  /// The events that became certain since the last call.
  std::vector<OutputEvent> take() { return parser_.take(); }

  const std::optional<std::string>& stop_string() const { return stops_.matched(); }
  int32_t complete_calls() const { return parser_.complete_calls(); }
  int32_t malformed_calls() const { return parser_.malformed_calls(); }
  int32_t reasoning_tokens() const { return reasoning_tokens_; }
  /// True if `token`, as the next one, would be text of the answer: no thinking, call or tag.
  bool is_content(int32_t token) const { return parser_.in_content() && !marker_of(token); }

 private:
  /// A tag token's place in the whole text, [begin, begin + marker_text size).
  struct PlacedMarker {
    Marker marker;
    size_t begin = 0;
    size_t end = 0;
  };
  std::optional<Marker> marker_of(int32_t token) const;
  void release(std::string_view text);

  const ServedModel& model_;
  SplitReasoning split_;
  int32_t stops_after_;
  int32_t pushed_ = 0;
  Detokenizer detokenizer_;
  StopMatcher stops_;
  OutputParser parser_;
  std::deque<PlacedMarker> markers_;  // not released yet
  size_t seen_ = 0;                   // bytes given to stops_
  size_t released_ = 0;               // bytes given to parser_
  std::string waiting_;               // certain text from released_ on that is part of a tag
  int32_t reasoning_tokens_ = 0;
};

/// The place where an answer to `prompt` begins: inside reasoning if its last think tag opens.
StartIn start_of(const ServedModel& model, std::span<const int32_t> prompt);

}  // namespace nibble
