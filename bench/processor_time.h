// The processor time of this program, which other programs of the machine do not add to.
#pragma once

#include <sys/resource.h>

namespace nibble {

/// Seconds of all threads, in the program and in the system.
inline double cpu_seconds() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace nibble
