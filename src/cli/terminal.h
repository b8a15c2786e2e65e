// The terminal: standard streams, whether a person watches, and a progress display that is a bar
// for a person and a line every few seconds for a log.
#pragma once

#include <signal.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nibble {

enum class Watcher : uint8_t { person, log };

class Terminal {
 public:
  /// `structure_worker`: the command by which this program compiles structures in processes of its
  /// own. A program that does not know the command would do anything else with it, so only main.cc
  /// gives one; without it structures are compiled in this process.
  explicit Terminal(std::vector<std::string> structure_worker = {});
  /// Writes to standard output: results only. A broken pipe is an error to stop on.
  Result<void> out(std::string_view text);
  /// Writes to standard error: everything else.
  void err(std::string_view text);
  Watcher err_watcher() const { return err_watcher_; }
  Watcher input_watcher() const { return input_watcher_; }
  int width() const;
  const std::vector<std::string>& structure_worker() const { return structure_worker_; }

 private:
  Watcher err_watcher_;
  Watcher input_watcher_;
  std::vector<std::string> structure_worker_;
};

/// Progress on standard error. Call update as often as you like.
class Progress {
 public:
  enum class Display : uint8_t { shown, hidden };
  /// `unit_scale` divides counts for display: 1e6 with unit "MB".
  struct Look {
    std::string_view label;
    std::string_view unit;
    double unit_scale = 1.0;
    Display display = Display::shown;
  };
  Progress(Terminal& terminal, const Look& look);
  ~Progress();
  void update(uint64_t done, uint64_t total);
  /// Ends the line. Called by the destructor if you do not.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  std::string line(uint64_t done, uint64_t total, double seconds) const;

  Terminal& terminal_;
  Look look_;
  Clock::time_point start_ = Clock::now();
  uint64_t first_done_ = 0;  // by an earlier run, or in the first call
  Clock::time_point last_shown_ = {};
  std::string last_line_;
  bool finished_ = false;
};

/// SIGINT asks work to stop; a second one ends the process. Installed by verbs with long work.
void install_interrupt_flag();
bool interrupted();

/// install_interrupt_flag() as long as it lives; then signals do what they did before.
class InterruptFlag {
 public:
  InterruptFlag();
  ~InterruptFlag();
  InterruptFlag(const InterruptFlag&) = delete;
  InterruptFlag& operator=(const InterruptFlag&) = delete;

 private:
  struct sigaction int_before_ = {};
  struct sigaction term_before_ = {};
};

}  // namespace nibble
