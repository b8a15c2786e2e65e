// PrefixWriter: saves pinned prefixes to a PrefixStore on its own thread, so that no disk makes the
// engine wait.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "engine/cache/prefix_store.h"

namespace nibble {

class PrefixWriter {
 public:
  /// `report` gets one line for each prefix that could not be saved; called on the writer's thread.
  PrefixWriter(PrefixStore& store, std::function<void(std::string)> report);
  /// Saves what is queued, then ends.
  ~PrefixWriter();
  PrefixWriter(const PrefixWriter&) = delete;
  PrefixWriter& operator=(const PrefixWriter&) = delete;

  /// Queues a prefix. With kQueuedMax waiting the new one is reported and dropped: it is still in
  /// the cache, and pinned again when it is next computed.
  void save(PrefixBytes prefix);

  static constexpr size_t kQueuedMax = 4;

 private:
  void run();

  PrefixStore& store_;
  std::function<void(std::string)> report_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<PrefixBytes> queue_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace nibble
