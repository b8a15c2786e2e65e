// Standard error while many threads work: lines that do not tear the bar, and the bar.
#pragma once

#include <mutex>
#include <string>

#include "base/concat.h"
#include "cli/terminal.h"

namespace nibble {

/// Standard error for many threads: lines and the bar.
class HubReporter {
 public:
  HubReporter(Terminal& terminal, std::string_view label)
      : terminal_(terminal),
        progress_(terminal, {.label = label, .unit = "MB", .unit_scale = 1e6}) {}

  void line(const std::string& text) {
    const std::lock_guard lock(mutex_);
    const bool person = terminal_.err_watcher() == Watcher::person;
    terminal_.err(concat(person ? "\r\x1b[2K" : "", text, "\n"));
  }
  void progress(uint64_t done, uint64_t total) {
    const std::lock_guard lock(mutex_);
    progress_.update(done, total);
  }
  void finish() {
    const std::lock_guard lock(mutex_);
    progress_.finish();
  }

 private:
  Terminal& terminal_;
  std::mutex mutex_;
  Progress progress_;
};

}  // namespace nibble
