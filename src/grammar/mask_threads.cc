// Two threads: masks that take long are rare, and a card's server has other work for its processor.
#include "grammar/mask_threads.h"

#include <utility>

namespace nibble {

MaskThreads& MaskThreads::shared() {
  static MaskThreads threads;
  return threads;
}

MaskThreads::MaskThreads() {
  constexpr int kThreads = 2;
  for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { run(); });
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
}

void MaskThreads::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !tasks_.empty(); });
    if (ending_) return;
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;  // what it holds goes without the lock
    lock.lock();
  }
}

}  // namespace nibble
