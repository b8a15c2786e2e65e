// FilterPanel: the filters of a server as one: a text passes if all let it pass in time. Lives on
// the server's thread; the filters answer from their own.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/output_filter.h"

namespace nibble {

/// What a filter that is slow or dead means.
enum class FilterFail : uint8_t { closed, open };
enum class FilterReasoning : uint8_t { no, yes };

struct FilterOptions {
  std::vector<std::shared_ptr<OutputFilter>> filters;  // none: nothing is held or asked
  FilterFail fail = FilterFail::closed;
  FilterReasoning reasoning = FilterReasoning::no;  // whether thinking is judged too
  std::chrono::milliseconds timeout{5'000};         // of one question
  size_t window_bytes = 256;  // of an answer held back: the longest text a filter can still catch
};

class FilterPanel {
 public:
  using Done = std::function<void(FilterVerdict)>;
  using Clock = std::chrono::steady_clock;
  /// How it comes back to the server's thread: at once, and after a while.
  struct Server {
    std::function<void(std::function<void()>)> post;
    std::function<void(std::chrono::milliseconds, std::function<void()>)> post_after;
  };

  FilterPanel(FilterOptions options, Server server);
  ~FilterPanel();

  bool empty() const { return options_.filters.empty(); }
  const FilterOptions& options() const { return options_; }
  /// `done` is called once, later, on the server's thread. failed: only where that is no pass.
  void judge(FilterQuestion question, Done done);
  /// Counters for /metrics, or nothing without filters.
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
  void sweep();
  void schedule_sweep();

  struct Counts {
    int64_t asked = 0, hits = 0, failures = 0;
  };

  FilterOptions options_;
  Server server_;
  std::vector<Counts> counts_;              // of each filter
  std::deque<std::shared_ptr<Case>> open_;  // the oldest first
  bool sweeping_ = false;
  std::shared_ptr<Door> door_;
};

}  // namespace nibble
