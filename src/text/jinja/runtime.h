// Runtime: what one rendering has used up, and the only maker of strings and containers, so that no
// template can exceed its limits. Also the owner of namespaces, which may form cycles.
#pragma once

#include <chrono>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/jinja/limits.h"
#include "text/jinja/value.h"

namespace nibble::jinja {

/// A failure in Python's words.
inline Error fail(std::string message) {
  return Error{ErrorCode::invalid_argument, std::move(message)};
}

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keyword;
};

class Runtime {
 public:
  Runtime(const TemplateLimits& limits, std::chrono::local_seconds now)
      : limits_(limits), now_(now) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  Result<void> charge(int64_t steps);
  Result<Value> text(Text text);
  Result<Value> text(std::string bytes, Origin origin) {
    return this->text(Text(std::move(bytes), origin));
  }
  Result<Value> list(std::vector<Value> items, SequenceKind kind = SequenceKind::list,
                     std::string_view type = "list");
  /// Later entries replace earlier ones of the same key.
  Result<Value> dict(std::vector<DictEntry> entries);
  Namespace* new_namespace() { return &namespaces_.emplace_back(); }

  /// Counts nesting of evaluation; leave() after each successful enter().
  Result<void> enter();
  void leave() { --depth_; }
  Result<void> enter_macro();
  void leave_macro() { --macro_depth_; }

  /// Does what raise_exception asks: the message goes out exactly as it is.
  Error raise(std::string message) {
    raised_ = true;
    return fail(std::move(message));
  }
  bool raised() const { return raised_; }

  const TemplateLimits& limits() const { return limits_; }
  std::chrono::local_seconds now() const { return now_; }

 private:
  Result<void> check_container(int64_t weight, int depth);

  const TemplateLimits limits_;
  const std::chrono::local_seconds now_;
  int64_t steps_ = 0;
  int depth_ = 0;
  int macro_depth_ = 0;
  bool raised_ = false;
  std::deque<Namespace> namespaces_;
};

/// JSON data as template values, every part tagged with its origin.
Result<Value> from_json(Runtime& runtime, const Json& json, Origin origin);

/// The items a `for` visits: of a list, the keys of a dict, the characters of a string.
/// Error: "'int' object is not iterable". An iterator is exhausted by this.
Result<std::vector<Value>> iterate(Runtime& runtime, const Value& value);

}  // namespace nibble::jinja
