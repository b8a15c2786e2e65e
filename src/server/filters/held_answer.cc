// One question at a time; what comes meanwhile is asked about together.
#include "server/filters/held_answer.h"

#include <algorithm>

#include "base/check.h"

namespace nibble {

namespace {

constexpr size_t kQuestionBytesMax = 64 * 1024;  // bytes of new text in a question, at most

/// The text of an event that filters see.
std::string seen(const OutputEvent& event) {
  return event.kind == OutputEvent::Kind::tool_begin ? event.text + "\n" : event.text;
}

/// The last boundary between characters at or before `at`.
size_t boundary(std::string_view text, size_t at) {
  while (at > 0 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U)
    --at;
  return at;
}

}  // namespace

std::optional<FilterPlace> HeldAnswer::place_of(const OutputEvent& event) const {
  if (event.kind == OutputEvent::Kind::content) return FilterPlace::content;
  if (event.kind != OutputEvent::Kind::reasoning) return FilterPlace::arguments;
  if (panel_.options().reasoning == FilterReasoning::no) return std::nullopt;
  return FilterPlace::reasoning;
}

void HeldAnswer::add(std::vector<OutputEvent> events) {
  if (verdict_ != FilterVerdict::pass) return;
  for (OutputEvent& event : events) {
    const auto place = place_of(event);
    const bool fresh = segments_.empty() || segments_.back().closed ||
                       segments_.back().place != place ||
                       event.kind == OutputEvent::Kind::tool_begin;
    if (fresh) {
      if (!segments_.empty()) segments_.back().closed = true;
      segments_.push_back({.place = place});
    }
    segments_.back().text += seen(event);
    segments_.back().closed = event.kind == OutputEvent::Kind::tool_end;
    segments_.back().events.push_back(std::move(event));
  }
  advance();
}

void HeldAnswer::finish() {
  if (std::exchange(finished_, true)) return;
  advance();
}

size_t HeldAnswer::held_bytes() const {
  size_t bytes = 0;
  for (const Segment& segment : segments_) bytes += segment.text.size();
  return bytes;
}

void HeldAnswer::advance() {
  while (!segments_.empty() && !asking_) {
    Segment& segment = segments_.front();
    const bool whole = segment.closed || segments_.size() > 1 || finished_;
    if (!segment.place) segment.judged = segment.text.size();
    if (segment.judged < segment.text.size()) return ask(segment);
    const size_t window = whole || !segment.place ? 0 : panel_.options().window_bytes;
    const size_t free = segment.judged - std::min(segment.judged, window);
    release(segment, boundary(segment.text, free));
    if (!whole) return;
    CHECK(segment.events.empty(), "events of a whole segment stay: ", segment.events.size());
    segments_.pop_front();
  }
}

void HeldAnswer::ask(Segment& segment) {
  asking_ = true;
  const size_t most = std::min(segment.text.size(), segment.judged + kQuestionBytesMax);
  const size_t end = std::max(boundary(segment.text, most), segment.judged + 1);
  FilterQuestion question{.place = *segment.place,
                          .text = segment.before + segment.text.substr(0, end)};
  panel_.judge(filters_, std::move(question),
               [weak = weak_from_this(), end](FilterVerdict verdict) {
                 if (const auto alive = weak.lock()) alive->hear(verdict, end);
               });
}

void HeldAnswer::hear(FilterVerdict verdict, size_t asked_to) {
  asking_ = false;
  verdict_ = verdict;
  if (verdict == FilterVerdict::pass) {
    segments_.front().judged = asked_to;
    const size_t window = panel_.options().window_bytes;
    const size_t free = asked_to - std::min(asked_to, window);
    release(segments_.front(), boundary(segments_.front().text, free));
    advance();
  } else {
    segments_.clear();
  }
  changed_();
}

/// The first `bytes` of the segment's text, judged ones.
void HeldAnswer::release(Segment& segment, size_t bytes) {
  size_t left = bytes;
  while (!segment.events.empty()) {
    OutputEvent& event = segment.events.front();
    const size_t size = seen(event).size();
    if (size > left) {
      const bool divides = event.kind != OutputEvent::Kind::tool_begin;
      if (!divides || left == 0) break;
      OutputEvent part = event;
      part.text.resize(left);
      event.text.erase(0, left);
      released_.push_back(std::move(part));
      left = 0;
      break;
    }
    left -= size;
    released_.push_back(std::move(event));
    segment.events.pop_front();
  }
  const size_t gone = bytes - left;
  segment.before += segment.text.substr(0, gone);
  segment.text.erase(0, gone);
  segment.judged -= gone;
  // Context for patterns that look at what is before a word; it begins with a whole one.
  const size_t window = panel_.options().window_bytes;
  if (segment.before.size() <= window) return;
  segment.before.erase(0, segment.before.size() - window);
  const size_t space = segment.before.find_first_of(" \n\t");
  segment.before.erase(0, std::min(space, segment.before.size()));
}

}  // namespace nibble
