// Places tag tokens in the text by byte offset, so that stop strings may cut anywhere.
#include "server/decode/choice_decoder.h"

#include <algorithm>

namespace nibble {

ChoiceDecoder::ChoiceDecoder(const ServedModel& model, Options options)
    : model_(model),
      split_(options.split),
      stops_after_(options.stops_after),
      detokenizer_(model.tokenizer, options.skip_special),
      stops_(std::move(options.stops), options.stop_text),
      parser_(options.start, options.parse_tools, std::move(options.schemas)) {}

std::optional<Marker> ChoiceDecoder::marker_of(int32_t token) const {
  const TagIds& tags = model_.tags;
  if (split_ == SplitReasoning::no) return std::nullopt;
  if (token == tags.think_begin) return Marker::think_begin;
  if (token == tags.think_end) return Marker::think_end;
  if (token == tags.tool_begin) return Marker::tool_begin;
  if (token == tags.tool_end) return Marker::tool_end;
  return std::nullopt;
}

void ChoiceDecoder::push(int32_t token) {
  if (parser_.in_reasoning()) ++reasoning_tokens_;
  const std::string text = detokenizer_.push(token);
  if (const auto marker = marker_of(token)) {
    // Text before the tag, if any, is the end of an unfinished character. A tokenizer that flags
    // the tag as special gives no text for it.
    const size_t size = text.ends_with(marker_text(*marker)) ? marker_text(*marker).size() : 0;
    const size_t end = seen_ + text.size();
    markers_.push_back({*marker, end - size, end});
  }
  seen_ += text.size();
  release(++pushed_ <= stops_after_ ? stops_.pass(text) : stops_.push(text));
}

void ChoiceDecoder::finish() {
  const std::string text = detokenizer_.flush();
  seen_ += text.size();
  release(stops_.push(text));
  release(stops_.flush());
  parser_.finish();
}

void ChoiceDecoder::release(std::string_view text) {
  waiting_ += text;
  const auto pass = [&](size_t size) {
    parser_.text(std::string_view(waiting_).substr(0, size));
    waiting_.erase(0, size);
    released_ += size;
  };
  while (!markers_.empty() && markers_.front().begin <= released_ + waiting_.size()) {
    const PlacedMarker next = markers_.front();
    pass(next.begin - released_);
    // A tag that is only partly certain waits; should a stop string cut it, it never comes.
    if (next.end > released_ + waiting_.size()) return;
    markers_.pop_front();
    waiting_.erase(0, next.end - released_);
    released_ = next.end;
    parser_.marker(next.marker);
  }
  pass(waiting_.size());
}

StartIn start_of(const ServedModel& model, std::span<const int32_t> prompt) {
  for (size_t i = prompt.size(); i-- > 0;) {
    if (prompt[i] == model.tags.think_end) return StartIn::content;
    if (prompt[i] == model.tags.think_begin) return StartIn::reasoning;
  }
  return StartIn::content;
}

}  // namespace nibble
