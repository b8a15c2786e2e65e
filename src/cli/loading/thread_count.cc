// Threads beyond the cores are refused: they would wait for each other.
#include "cli/loading/thread_count.h"

#include <cstdint>

#include "base/thread_pool.h"

namespace nibble {

Result<int> read_threads(const Arguments& arguments) {
  const int64_t threads = TRY(arguments.integer(kThreadsOption.name, 0, INT32_MAX));
  const int cores = usable_cores();
  if (threads > cores)
    return make_error(
        ErrorCode::invalid_argument,
        {.what = "--threads",
         .expected = concat("at most ", cores, ", the cores that this process may use"),
         .found = concat(threads),
         .advice = "leave it out to use them all"});
  return threads == 0 ? cores : static_cast<int>(threads);
}

}  // namespace nibble
