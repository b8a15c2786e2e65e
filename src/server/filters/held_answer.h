// HeldAnswer: one choice's events on their way past the filters. What a filter may yet object to
// is held back: text it was not asked about, and the window before that, since a text that must
// not be seen may begin there. Lives on the server's thread.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/decode/output_parser.h"
#include "server/filters/filter_panel.h"

namespace nibble {

class HeldAnswer : public std::enable_shared_from_this<HeldAnswer> {
 public:
  /// `changed` is called when a verdict has come, never from within a call. `panel` must outlive
  /// it.
  HeldAnswer(FilterPanel& panel, FilterSet filters, std::function<void()> changed)
      : panel_(panel), filters_(std::move(filters)), changed_(std::move(changed)) {}

  void add(std::vector<OutputEvent> events);
  /// No more events will come.
  void finish();
  /// The events that may be shown since the last time.
  std::vector<OutputEvent> take() { return std::exchange(released_, {}); }

  /// hit or failed: the answer ends where it is, and what was held is gone.
  FilterVerdict verdict() const { return verdict_; }
  /// Nothing is held any more, and nothing will come.
  bool settled() const {
    return verdict_ != FilterVerdict::pass || (finished_ && segments_.empty());
  }
  size_t held_bytes() const;

 private:
  /// Text of one kind, which filters see as one: thinking, prose, one call.
  struct Segment {
    std::optional<FilterPlace> place;  // nothing: not judged
    std::deque<OutputEvent> events;    // not released
    std::string text;                  // theirs
    std::string before;                // the last of what was released
    size_t judged = 0;                 // bytes of text that a filter has let pass
    bool closed = false;
  };

  std::optional<FilterPlace> place_of(const OutputEvent& event) const;
  void advance();
  void ask(Segment& segment);
  void hear(FilterVerdict verdict, size_t asked_to);
  void release(Segment& segment, size_t bytes);

  FilterPanel& panel_;
  FilterSet filters_;
  std::function<void()> changed_;
  std::deque<Segment> segments_;
  std::vector<OutputEvent> released_;
  FilterVerdict verdict_ = FilterVerdict::pass;
  bool asking_ = false;  // about the first segment
  bool finished_ = false;
};

}  // namespace nibble
