// A card's server has other work for its processor, so a thread is started only when it is needed.
#include "grammar/mask_threads.h"

#include <algorithm>
#include <utility>

namespace nibble {

namespace {

constexpr size_t kThreads = 2;  // that are not held up
constexpr size_t kQuickThreadsMax = 16;
constexpr std::chrono::milliseconds kHeldUp{2};

}  // namespace

MaskThreads& MaskThreads::quick() {
  static MaskThreads threads(kQuickThreadsMax);
  return threads;
}

MaskThreads& MaskThreads::slow() {
  static MaskThreads threads(kThreads);
  return threads;
}

MaskThreads::~MaskThreads() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void MaskThreads::post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
  relieve();
}

void MaskThreads::relieve() {
  const std::lock_guard lock(mutex_);
  if (tasks_.empty() || threads_.size() >= threads_max_) return;
  const auto now = Clock::now();
  const auto held_up = static_cast<size_t>(std::ranges::count_if(
      begun_, [&](const auto& running) { return now - running.second > kHeldUp; }));
  if (threads_.size() - held_up >= kThreads) return;
  threads_.emplace_back([this, thread = threads_.size()] { run(thread); });
}

void MaskThreads::run(size_t thread) {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !tasks_.empty(); });
    if (ending_) return;
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    begun_[thread] = Clock::now();
    lock.unlock();
    task();
    task = nullptr;  // what it holds goes without the lock
    lock.lock();
    begun_.erase(thread);
  }
}

}  // namespace nibble
