// Where xgrammar's messages go: kept for the compilation that runs on this thread, never printed.
#include "grammar/xgrammar_log.h"

#include <stdexcept>

namespace nibble {

namespace {
thread_local std::vector<std::string> collected;
}  // namespace

std::vector<std::string> take_xgrammar_warnings() { return std::exchange(collected, {}); }

}  // namespace nibble

namespace xgrammar {

// Declared in its cpp/support/logging.h for XGRAMMAR_LOG_CUSTOMIZE.
[[noreturn]] void LogFatalImpl(const std::string&, int, const std::string& message) {
  throw std::runtime_error(message);
}

void LogMessageImpl(const std::string&, int, int level, const std::string& message) {
  constexpr int kWarning = 2;  // its XGRAMMAR_LOG_LEVEL_WARNING
  constexpr size_t kKeptMax = 16;
  if (level >= kWarning && nibble::collected.size() < kKeptMax)
    nibble::collected.push_back(message);
}

}  // namespace xgrammar
