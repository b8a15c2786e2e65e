// A bounded queue and a thread.
#include "engine/cache/prefix_writer.h"

namespace nibble {

PrefixWriter::PrefixWriter(PrefixStore& store, std::function<void(std::string)> report)
    : store_(store), report_(std::move(report)), thread_([this] { run(); }) {}

PrefixWriter::~PrefixWriter() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void PrefixWriter::save(PrefixBytes prefix) {
  {
    const std::lock_guard lock(mutex_);
    if (queue_.size() < kQueuedMax) {
      queue_.push_back(std::move(prefix));
      changed_.notify_all();
      return;
    }
  }
  if (report_)
    report_(concat("pinned prefix of ", prefix.tokens.size(),
                   " tokens not saved: the disk is slower than the requests"));
}

void PrefixWriter::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ending_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const PrefixBytes prefix = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    const auto saved = store_.save(prefix);
    if (!saved.ok() && report_)
      report_(concat("pinned prefix of ", prefix.tokens.size(),
                     " tokens not saved: ", saved.error().message));
    lock.lock();
  }
}

}  // namespace nibble
