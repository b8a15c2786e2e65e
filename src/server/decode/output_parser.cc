// A state machine over buffer_: step() understands what it can and says whether to go on.
#include "server/decode/output_parser.h"

#include <algorithm>
#include <utility>

namespace nibble {

namespace {

using namespace std::string_view_literals;

constexpr auto kFunction = "<function="sv;
constexpr auto kFunctionEnd = "</function>"sv;
constexpr auto kParameter = "<parameter="sv;
constexpr auto kParameterEnd = "</parameter>"sv;
constexpr size_t kNameBytesMax = 256;  // bytes of the name of a function or a parameter, at most
constexpr size_t kSpacesMax = 4096;    // white space held back
constexpr size_t kSliceBytes = 1024;   // bytes of text that are taken at once

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

/// text is a proper beginning of word.
bool begins(std::string_view word, std::string_view text) {
  return text.size() < word.size() && word.starts_with(text);
}

}  // namespace

std::string_view marker_text(Marker marker) {
  switch (marker) {
    case Marker::think_begin:
      return "<think>";
    case Marker::think_end:
      return "</think>";
    case Marker::tool_begin:
      return "<tool_call>";
    case Marker::tool_end:
      return "</tool_call>";
  }
  CHECK(false, "marker ", static_cast<int>(marker));
}

OutputParser::OutputParser(StartIn start, ParseTools parse_tools, ToolSchemas schemas)
    : state_(start == StartIn::reasoning ? State::reasoning : State::content),
      prose_state_(state_),
      parse_tools_(parse_tools),
      schemas_(std::move(schemas)) {}

void OutputParser::text(std::string_view piece) {
  // The buffer is read in slices, so that dropping what was understood from a long buffer stays
  // linear.
  while (!piece.empty()) {
    size_t size = std::min(piece.size(), kSliceBytes);
    while (size < piece.size() && (static_cast<unsigned char>(piece[size]) & 0xC0U) == 0x80U)
      ++size;
    buffer_ += piece.substr(0, size);
    piece.remove_prefix(size);
    advance();
  }
}

void OutputParser::advance() {
  while (step()) {
  }
}

bool OutputParser::step() {
  switch (state_) {
    case State::reasoning:
    case State::content:
      return step_prose();
    case State::opened:
      return step_opened();
    case State::name:
      return step_name();
    case State::parameters:
      return step_parameters();
    case State::key:
      return step_key();
    case State::value:
      return step_value();
    case State::after_call:
      return step_after_call();
  }
  return false;
}

void OutputParser::emit(OutputEvent::Kind kind, std::string_view text) {
  const int32_t tool = kind < OutputEvent::Kind::tool_begin ? 0 : calls_;
  const bool joins = kind != OutputEvent::Kind::tool_begin && kind != OutputEvent::Kind::tool_end;
  if (joins && text.empty()) return;
  spoke_ = true;
  has_content_ |= kind == OutputEvent::Kind::content;
  if (joins && !events_.empty() && events_.back().kind == kind && events_.back().tool == tool)
    events_.back().text += text;
  else
    events_.push_back({kind, std::string(text), tool});
}

/// Prose, with its trailing white space held back.
void OutputParser::emit_prose(std::string_view text) {
  if (skip_newlines_) {
    const size_t begin = text.find_first_not_of('\n');
    if (begin == std::string_view::npos) return;
    text.remove_prefix(begin);
    skip_newlines_ = false;
  }
  if (text.empty()) return;
  const size_t last = text.find_last_not_of(" \t\r\n");
  if (last != std::string_view::npos) {
    emit_spaces();
    const bool thinking = state_ == State::reasoning;
    emit(thinking ? OutputEvent::Kind::reasoning : OutputEvent::Kind::content,
         text.substr(0, last + 1));
    text.remove_prefix(last + 1);
  }
  spaces_ += text;
  if (spaces_.size() > kSpacesMax) emit_spaces();
}

void OutputParser::emit_spaces() {
  const std::string spaces = std::exchange(spaces_, {});
  const bool thinking = state_ == State::reasoning;
  emit(thinking ? OutputEvent::Kind::reasoning : OutputEvent::Kind::content, spaces);
}

/// Reasoning or content: all of the buffer is prose, but for a `<function=` that begins a line.
bool OutputParser::step_prose() {
  if (buffer_.empty()) return false;
  if (parse_tools_ == ParseTools::no || state_ == State::reasoning) {
    emit_prose(std::exchange(buffer_, {}));
    return false;
  }
  size_t at = 0;
  while (at < buffer_.size()) {
    const std::string_view rest = std::string_view(buffer_).substr(at);
    if (at_line_start_ && rest.starts_with(kFunction)) {
      emit_prose(std::string_view(buffer_).substr(0, at));
      buffer_.erase(0, at + kFunction.size());
      by_marker_ = false;
      prose_state_ = state_;
      state_ = State::name;
      return true;
    }
    if (at_line_start_ && begins(kFunction, rest)) break;  // wait for more
    at_line_start_ = buffer_[at] == '\n' || (at_line_start_ && is_space(buffer_[at]));
    ++at;
  }
  emit_prose(std::string_view(buffer_).substr(0, at));
  buffer_.erase(0, at);
  return false;
}

bool OutputParser::step_opened() {
  const size_t begin = buffer_.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return false;
  const std::string_view rest = std::string_view(buffer_).substr(begin);
  if (begins(kFunction, rest)) return false;
  if (!rest.starts_with(kFunction)) {
    give_up_call();
    return true;
  }
  buffer_.erase(0, begin + kFunction.size());
  state_ = State::name;
  return true;
}

/// Treats what looked like a call as text; the rest of the buffer is read again as prose.
void OutputParser::give_up_call() {
  const bool in_name = state_ == State::name;
  state_ = prose_state_;
  at_line_start_ = false;
  malformed_calls_ += by_marker_ ? 1 : 0;
  if (by_marker_) emit_prose(marker_text(Marker::tool_begin));
  if (in_name) emit_prose(kFunction);
}

/// No name can come any more. What follows may look like a call once more.
void OutputParser::give_up_unnamed_calls() {
  while (state_ == State::opened || state_ == State::name) {
    give_up_call();
    advance();
  }
}

bool OutputParser::step_name() {
  const size_t end = buffer_.find_first_of(">\n");
  if (end == std::string::npos && buffer_.size() <= kNameBytesMax) return false;
  if (end == std::string::npos || end == 0 || end > kNameBytesMax || buffer_[end] != '>') {
    give_up_call();
    return true;
  }
  if (prose_state_ == State::reasoning) leave_reasoning();
  spaces_.clear();
  function_ = buffer_.substr(0, end);
  buffer_.erase(0, end + 1);
  keys_.clear();
  emit(OutputEvent::Kind::tool_begin, function_);
  state_ = State::parameters;
  return true;
}

bool OutputParser::step_parameters() {
  const size_t at = buffer_.find('<');
  if (at == std::string::npos) {
    buffer_.clear();  // between parameters only white space means nothing, and the rest is noise
    return false;
  }
  buffer_.erase(0, at);
  if (buffer_.starts_with(kParameter)) {
    buffer_.erase(0, kParameter.size());
    state_ = State::key;
    return true;
  }
  if (buffer_.starts_with(kFunctionEnd)) {
    buffer_.erase(0, kFunctionEnd.size());
    end_call();
    state_ = State::after_call;
    return true;
  }
  if (begins(kParameter, buffer_) || begins(kFunctionEnd, buffer_)) return false;
  buffer_.erase(0, 1);
  return true;
}

bool OutputParser::step_key() {
  const size_t end = buffer_.find_first_of(">\n");
  const size_t most = parse_tools_ == ParseTools::sound ? SIZE_MAX : kNameBytesMax;
  if (end == std::string::npos && buffer_.size() <= most) return false;
  if (end == std::string::npos || end > most || buffer_[end] != '>') {
    state_ = State::parameters;  // not a parameter: noise
    return true;
  }
  key_ = buffer_.substr(0, end);
  buffer_.erase(0, end + 1);
  begin_argument();
  state_ = State::value;
  scanned_ = 0;
  return true;
}

void OutputParser::begin_argument() {
  value_dropped_ = keys_.contains(key_);
  value_begun_ = false;
  kind_ = schemas_.kind(function_, key_, call_text());
  if (value_dropped_) return;
  std::string text = keys_.empty() ? "{" : ", ";
  append_json_string(text, key_);
  text += ": ";
  keys_.insert(key_);
  emit(OutputEvent::Kind::tool_arguments, text);
}

/// Looks for the end of a value: </parameter> anywhere, or, where that may be forgotten, the next
/// <parameter= or </function> at the start of a line.
bool OutputParser::step_value() {
  const bool forgetful = parse_tools_ == ParseTools::yes;
  const std::string_view all = buffer_;
  for (size_t at = scanned_; at < all.size(); ++at) {
    const std::string_view rest = all.substr(at);
    const bool line = rest[0] == '\n';
    const bool line_start = forgetful && (line || (at == 0 && !value_begun_));
    const std::string_view tag = line ? rest.substr(1) : rest;
    if (rest[0] != '<' && !line) continue;
    if (tag.starts_with(kParameterEnd)) {
      end_value(at);
      buffer_.erase(0, at + (line ? 1 : 0) + kParameterEnd.size());
      return true;
    }
    const bool next = tag.starts_with(kParameter) || tag.starts_with(kFunctionEnd);
    if (next && line_start) {
      end_value(at);
      buffer_.erase(0, at + (line ? 1 : 0));
      return true;
    }
    const bool open = begins(kParameterEnd, tag) ||
                      (line_start && (begins(kParameter, tag) || begins(kFunctionEnd, tag)));
    if (!open) continue;
    value_text(all.substr(0, at));
    return false;
  }
  value_text(all);
  return false;
}

/// `text`, the beginning of the buffer, belongs to the value. A string is passed on at once.
void OutputParser::value_text(std::string_view text) {
  if (kind_ == ParameterKind::value) {
    scanned_ = text.size();
    return;
  }
  const size_t size = text.size();
  if (!value_begun_ && size == 0) return;
  std::string out;
  if (!value_begun_) {
    if (text.starts_with('\n')) text.remove_prefix(1);
    out.push_back('"');
    value_begun_ = true;
  }
  std::string escaped;
  append_json_string(escaped, text);
  out += std::string_view(escaped).substr(1, escaped.size() - 2);
  if (!value_dropped_) emit(OutputEvent::Kind::tool_arguments, out);
  buffer_.erase(0, size);
  scanned_ = 0;
}

/// The value is buffer_[0, at): what was not passed on yet. The caller drops it from the buffer.
void OutputParser::end_value(size_t at) {
  std::string_view text = std::string_view(buffer_).substr(0, at);
  const bool first = !value_begun_;
  if (first && text.starts_with('\n')) text.remove_prefix(1);
  std::string out;
  if (kind_ == ParameterKind::value) {
    out = schemas_.json_of(function_, key_, text, call_text());
  } else {
    append_json_string(out, text);
    if (!first) out.erase(0, 1);
  }
  if (!value_dropped_) emit(OutputEvent::Kind::tool_arguments, out);
  state_ = State::parameters;
}

void OutputParser::end_call() {
  emit(OutputEvent::Kind::tool_arguments, keys_.empty() ? "{}" : "}");
  emit(OutputEvent::Kind::tool_end, {});
  ++calls_;
  ++complete_calls_;
}

bool OutputParser::step_after_call() {
  const size_t begin = buffer_.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return false;
  const std::string_view rest = std::string_view(buffer_).substr(begin);
  if (begins(kFunction, rest)) return false;
  if (rest.starts_with(kFunction)) {
    buffer_.erase(0, begin + kFunction.size());
    prose_state_ = State::content;
    by_marker_ = false;
    state_ = State::name;
    return true;
  }
  state_ = State::content;
  at_line_start_ = true;
  return true;
}

void OutputParser::leave_reasoning() {
  spaces_.clear();
  state_ = State::content;
  prose_state_ = State::content;
}

void OutputParser::marker(Marker marker) {
  const bool prose = state_ == State::reasoning || state_ == State::content;
  if (marker == Marker::think_end && state_ == State::reasoning) {
    leave_reasoning();
    skip_newlines_ = true;
    at_line_start_ = true;
    return;
  }
  if (marker == Marker::think_end && state_ == State::content && !has_content_ && spoke_) {
    spaces_.clear();  // once more, or after a call that was made while thinking
    skip_newlines_ = true;
    return;
  }
  if (marker == Marker::think_begin && prose && !spoke_) {
    state_ = State::reasoning;  // the model opens, or repeats, the thinking itself
    skip_newlines_ = true;
    return;
  }
  if (parse_tools_ != ParseTools::no && marker == Marker::tool_begin &&
      (prose || state_ == State::after_call)) {
    if (prose)
      emit_prose(std::exchange(buffer_, {}));
    else
      buffer_.clear();
    prose_state_ = state_ == State::reasoning ? State::reasoning : State::content;
    by_marker_ = true;
    state_ = State::opened;
    return;
  }
  if (parse_tools_ != ParseTools::no && marker == Marker::tool_end) {
    give_up_unnamed_calls();
    if (state_ == State::value) {
      const size_t keep = buffer_.ends_with('\n') ? buffer_.size() - 1 : buffer_.size();
      end_value(keep);
      end_call();
    } else if (state_ == State::parameters || state_ == State::key) {
      end_call();
    } else if (state_ != State::after_call) {
      emit_prose(std::exchange(buffer_, {}));
      emit_prose(marker_text(marker));
      return;
    }
    buffer_.clear();
    state_ = State::content;
    at_line_start_ = true;
    return;
  }
  text(marker_text(marker));
}

void OutputParser::finish() {
  give_up_unnamed_calls();
  switch (state_) {
    case State::value:
      // The value ends as far as it came; the call stays open.
      if (kind_ == ParameterKind::text) value_text(buffer_);
      break;
    case State::reasoning:
    case State::content:
      emit_prose(std::exchange(buffer_, {}));
      break;
    default:
      break;
  }
  const bool prose = state_ == State::reasoning || state_ == State::content;
  if (prose && calls_ == 0) emit_spaces();
  buffer_.clear();
}

}  // namespace nibble
