// The processor time of this program, which other programs of the machine do not add to.
#pragma once

#include <ctime>

namespace nibble {

/// Seconds of all threads, in the program and in the system.
inline double cpu_seconds() {
  timespec time = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace nibble
