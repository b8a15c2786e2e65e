// FilterPanel: asks several filters as one: a text passes if all let it pass in time. Lives on the
// server's thread; the filters answer from their own. Time is counted in looks, not read from a
// clock: a machine that stands still for a while stops the filters too.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/filters/filter_store.h"

namespace nibble {

/// The verdict where a filter is slow or dead: closed refuses the text, open passes it.
enum class FilterFail : uint8_t { closed, open };
enum class FilterReasoning : uint8_t { no, yes };

struct FilterOptions {
  FilterSet filters;  // filters of every request, in addition to those of its key and profile
  std::shared_ptr<FilterStore> store;  // the store that keys and profiles use; empty: a new one
  FilterFail fail = FilterFail::closed;
  FilterReasoning reasoning = FilterReasoning::no;  // whether thinking is judged too
  std::chrono::milliseconds timeout{5'000};         // time limit of one question
  size_t window_bytes = 256;  // of an answer that wait: the longest text that a filter can catch
};

class FilterPanel {
 public:
  using Done = std::function<void(FilterVerdict)>;
  /// The ways back to the server's thread: at once, and after a while.
  struct Server {
    std::function<void(std::function<void()>)> post;
    std::function<void(std::chrono::milliseconds, std::function<void()>)> post_after;
  };

  FilterPanel(FilterOptions options, Server server);
  ~FilterPanel();

  const FilterOptions& options() const { return options_; }
  /// `done` is called once, later, on the server's thread. failed: only where that is no pass. No
  /// `filters`: it passes.
  void judge(const FilterSet& filters, FilterQuestion question, Done done);
  /// Counters for /metrics, or nothing if no filter was ever asked or is there for all.
  std::string metrics_text() const;

 private:
  struct Case;
  /// The way back from the filters' threads. It closes when the panel ends, whoever still holds a
  /// filter; what comes later is dropped.
  struct Door {
    std::mutex mutex;
    FilterPanel* panel = nullptr;
  };
  void answer(const std::shared_ptr<Case>& asked, size_t filter, FilterVerdict verdict);
  std::chrono::milliseconds look_every() const;
  void sweep();
  void schedule_sweep();

  struct Counts {
    int64_t asked = 0, hits = 0, failures = 0;
  };
  Counts& counts_of(const OutputFilter& filter);

  FilterOptions options_;
  Server server_;
  std::map<std::string, Counts, std::less<>> counts_;  // by filter's name; they stay
  std::deque<std::shared_ptr<Case>> open_;             // the oldest first
  bool sweeping_ = false;
  uint64_t looks_ = 0;  // for questions whose time is over
  std::shared_ptr<Door> door_;
};

}  // namespace nibble
