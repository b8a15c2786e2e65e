// soon: waits for what must come true, for minutes: a busy machine may be slow or stand still.
#pragma once

#include <chrono>
#include <thread>

namespace nibble::testing {

inline constexpr std::chrono::seconds kPatience{600};

/// True once the condition is, false if it is not within kPatience.
template <typename Condition>
bool soon(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace nibble::testing
