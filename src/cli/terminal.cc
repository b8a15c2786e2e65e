// Streams, width, progress and the interrupt flag.
#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

namespace nibble {

namespace {

constexpr double kBarSeconds = 0.1;  // between two redraws for a person
constexpr double kLogSeconds = 5.0;  // between two lines for a log

Watcher watcher_of(int descriptor) {
  return ::isatty(descriptor) != 0 ? Watcher::person : Watcher::log;
}

std::string fixed(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 100) return concat(whole, " s");
  if (whole < 6000) return concat(whole / 60, " min ", whole % 60, " s");
  return concat(whole / 3600, " h ", whole % 3600 / 60, " min");
}

volatile std::sig_atomic_t interrupts = 0;  // set by the signal handler alone

void on_interrupt(int) {
  if (interrupts != 0) _exit(130);
  interrupts = 1;
}

}  // namespace

Terminal::Terminal(std::vector<std::string> structure_worker)
    : err_watcher_(watcher_of(STDERR_FILENO)),
      input_watcher_(watcher_of(STDIN_FILENO)),
      structure_worker_(std::move(structure_worker)) {}

Result<void> Terminal::out(std::string_view text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t put = ::write(STDOUT_FILENO, text.data() + done, text.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      return make_error(ErrorCode::io,
                        {.what = "cannot write to standard output", .found = std::strerror(errno)});
    }
    done += static_cast<size_t>(put);
  }
  return {};
}

void Terminal::err(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

int Terminal::width() const {
  winsize size = {};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

Progress::Progress(Terminal& terminal, const Look& look) : terminal_(terminal), look_(look) {}

Progress::~Progress() { finish(); }

std::string Progress::line(uint64_t done, uint64_t total, double seconds) const {
  const double share = total == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total);
  const double rate = seconds > 0 ? static_cast<double>(done - first_done_) / seconds : 0.0;
  const int decimals = look_.unit_scale == 1.0 ? 0 : 1;
  std::string tail =
      concat(" ", fixed(share * 100, 0), "%  ",
             fixed(static_cast<double>(done) / look_.unit_scale, decimals), "/",
             fixed(static_cast<double>(total) / look_.unit_scale, decimals), " ", look_.unit, "  ",
             fixed(rate / look_.unit_scale, 1), " ", look_.unit, "/s");
  if (rate > 0 && done < total) {
    tail += concat("  ", duration_text(static_cast<double>(total - done) / rate), " left");
  }
  if (terminal_.err_watcher() == Watcher::log) return concat(look_.label, tail);
  const int room = terminal_.width() - static_cast<int>(look_.label.size() + tail.size()) - 4;
  const int bar = std::clamp(room, 0, 40);
  const int filled = static_cast<int>(share * bar);
  return concat(look_.label, " ", std::string(static_cast<size_t>(filled), '#'),
                std::string(static_cast<size_t>(bar - filled), '.'), tail);
}

void Progress::update(uint64_t done, uint64_t total) {
  if (look_.display == Display::hidden || finished_) return;
  const auto now = Clock::now();
  const bool person = terminal_.err_watcher() == Watcher::person;
  const std::chrono::duration<double> since = now - std::max(last_shown_, start_);
  const std::chrono::duration<double> elapsed = now - start_;
  if (last_line_.empty() || done < first_done_) first_done_ = done;
  last_line_ = line(done, total, elapsed.count());
  if (since.count() < (person ? kBarSeconds : kLogSeconds)) return;
  last_shown_ = now;
  terminal_.err(person ? concat("\r\x1b[2K", last_line_) : concat(last_line_, "\n"));
}

void Progress::finish() {
  if (finished_ || look_.display == Display::hidden) return;
  finished_ = true;
  if (last_line_.empty()) return;
  const bool person = terminal_.err_watcher() == Watcher::person;
  terminal_.err(person ? concat("\r\x1b[2K", last_line_, "\n") : concat(last_line_, "\n"));
}

void install_interrupt_flag() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return interrupts != 0; }

InterruptFlag::InterruptFlag() {
  ::sigaction(SIGINT, nullptr, &int_before_);
  ::sigaction(SIGTERM, nullptr, &term_before_);
  install_interrupt_flag();
}

InterruptFlag::~InterruptFlag() {
  ::sigaction(SIGINT, &int_before_, nullptr);
  ::sigaction(SIGTERM, &term_before_, nullptr);
}

}  // namespace nibble
