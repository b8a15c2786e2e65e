// ChildServer: `nibble serve` as a process of its own, for benchmarks of its start. It ends with
// the object.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace nibble {

class ChildServer {
 public:
  /// Starts this program with `words` and waits until it says that it is ready, at most
  /// `limit_seconds`. Errors: io, with its last line; cancelled once `interrupted` says so.
  static Result<ChildServer> start(const std::vector<std::string>& words, double limit_seconds,
                                   const std::function<bool()>& interrupted);
  ChildServer(ChildServer&& other) noexcept;
  ChildServer& operator=(ChildServer&&) = delete;
  ~ChildServer();

  const std::string& url() const { return url_; }
  /// From the start of the process to its line.
  double ready_seconds() const { return ready_seconds_; }
  /// Sends SIGTERM and waits. Errors: io for another exit code than 0.
  Result<void> stop();

 private:
  ChildServer() = default;
  Result<void> wait_ready(double limit_seconds, const std::function<bool()>& interrupted);

  pid_t process_ = -1;
  int output_ = -1;  // the standard error of the child
  std::string url_;
  double ready_seconds_ = 0.0;
};

}  // namespace nibble
