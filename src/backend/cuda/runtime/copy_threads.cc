// As many threads as there are cores, up to what the link to a card can use.
#include "backend/cuda/runtime/copy_threads.h"

#include <algorithm>
#include <mutex>

#include "base/thread_pool.h"

namespace nibble::cuda {

Result<void> on_copy_threads(const DeviceContext& device,
                             const std::function<Result<void>()>& work) {
  constexpr int kThreadsMax = 16;
  ThreadPool pool(std::min(usable_cores(), kThreadsMax));
  std::mutex mutex;
  Result<void> outcome;
  pool.parallel_for(static_cast<size_t>(pool.size()), 1, [&](size_t, size_t) {
    device.use();
    const Result<void> done = work();
    const std::lock_guard lock(mutex);
    if (!done.ok() && outcome.ok()) outcome = done;
  });
  return outcome;
}

}  // namespace nibble::cuda
