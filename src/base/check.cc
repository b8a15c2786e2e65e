// The one place of the libraries that ends the process: a broken CHECK.
#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace nibble::detail {

void check_failed(const char* file, int line, const char* condition, const std::string& values) {
  std::fprintf(stderr, "nibble: internal error at %s:%d: CHECK(%s) failed%s%s\n", file, line,
               condition, values.empty() ? "" : ": ", values.c_str());
  std::abort();
}

}  // namespace nibble::detail
