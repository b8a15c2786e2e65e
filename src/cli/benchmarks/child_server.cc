// Starts a process with a pipe for its standard error and reads its lines.
#include "cli/benchmarks/child_server.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/child_process.h"

namespace nibble {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

Error system_error(std::string_view what, int error) {
  return make_error(ErrorCode::io, {.what = what, .found = std::strerror(error)});
}

/// The address in "ready: http://HOST:PORT/v1 after N ms"; empty for another line.
std::string ready_url(const std::string& line) {
  constexpr std::string_view kReady = "ready: ";
  if (!line.starts_with(kReady)) return {};
  const size_t end = line.find("/v1 ");
  return end == line.npos ? "" : line.substr(kReady.size(), end - kReady.size());
}

}  // namespace

ChildServer::ChildServer(ChildServer&& other) noexcept
    : process_(std::exchange(other.process_, -1)),
      output_(std::exchange(other.output_, -1)),
      url_(std::move(other.url_)),
      ready_seconds_(other.ready_seconds_) {}

ChildServer::~ChildServer() {
  if (process_ > 0) {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  if (output_ >= 0) ::close(output_);
}

Result<ChildServer> ChildServer::start(const std::vector<std::string>& words, double limit_seconds,
                                       const std::function<bool()>& interrupted) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("a pipe", errno);
  ChildServer server;
  server.output_ = ends[0];
  std::vector<std::string> all = {"nibble"};
  all.insert(all.end(), words.begin(), words.end());
  const StartedProcess started = start_process({.words = std::move(all),
                                                .program = "/proc/self/exe",
                                                .input = {},
                                                .output = {},
                                                .errors = ends[1],
                                                .environment = {},
                                                .group = ChildProcess::Group::shared});
  ::close(ends[1]);
  if (started.error != 0) return system_error("starting nibble serve", started.error);
  server.process_ = started.number;
  TRY(server.wait_ready(limit_seconds, interrupted));
  return server;
}

Result<void> ChildServer::wait_ready(double limit_seconds,
                                     const std::function<bool()>& interrupted) {
  const auto begin = Clock::now();
  std::string line;
  std::string last;
  while (seconds_since(begin) < limit_seconds) {
    if (interrupted()) return Error{ErrorCode::cancelled, "interrupted"};
    constexpr int kPollMs = 50;
    pollfd ready = {.fd = output_, .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, kPollMs) <= 0) continue;
    char c = 0;
    if (::read(output_, &c, 1) <= 0)
      return make_error(ErrorCode::io,
                        {.what = "nibble serve ended before it was ready", .found = last});
    constexpr size_t kLineMax = 65536;
    if (c != '\n' && line.size() < kLineMax) {
      line += c;
      continue;
    }
    url_ = ready_url(line);
    if (!url_.empty()) {
      ready_seconds_ = seconds_since(begin);
      return {};
    }
    if (!line.empty()) last = std::exchange(line, {});
  }
  return make_error(ErrorCode::io,
                    {.what = "nibble serve",
                     .found = concat("not ready after ", limit_seconds, " seconds: ", last)});
}

Result<void> ChildServer::stop() {
  ::kill(process_, SIGTERM);
  // It may have more to say than a pipe holds.
  char rest[4096];
  while (::read(output_, rest, sizeof rest) > 0) {
  }
  int status = 0;
  ::waitpid(std::exchange(process_, -1), &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return make_error(
      ErrorCode::io,
      {.what = "nibble serve", .expected = "to end with 0", .found = concat("status ", status)});
}

}  // namespace nibble
