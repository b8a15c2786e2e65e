// Receives xgrammar's messages: a fatal one becomes an exception, the rest is never printed.
#include <stdexcept>
#include <string>

namespace xgrammar {

// Declared in its cpp/support/logging.h for XGRAMMAR_LOG_CUSTOMIZE.
[[noreturn]] void LogFatalImpl(const std::string&, int, const std::string& message) {
  throw std::runtime_error(message);
}

void LogMessageImpl(const std::string&, int, int, const std::string&) {}

}  // namespace xgrammar
