// Starts programs as processes of their own. posix_spawn is safe beside other threads and takes no
// copy of this process's memory.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace nibble {

struct ChildProcess {
  std::vector<std::string> words;  // a path, or a name that is looked for in $PATH; then arguments
  std::string program;             // the path, where words[0] is only what it is told; else empty
  // Descriptors of this process that become its standard ones; without them it has this process's.
  std::optional<int> input, output, errors;
  std::optional<std::vector<std::string>> environment;  // "NAME=VALUE"; absent: this process's
  /// own: Ctrl-C in a terminal is not for it, and it can be killed with what it started.
  enum class Group { own, shared };
  Group group = Group::own;
};

/// The number of the process, or the errno that tells why there is none.
struct StartedProcess {
  pid_t number = -1;
  int error = 0;
};

/// Starts it with no other descriptors than the standard ones, no signal blocked and SIGPIPE not
/// ignored. The caller waits for its end.
StartedProcess start_process(const ChildProcess& child);

}  // namespace nibble
