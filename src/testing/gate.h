// Gate: a place where one thread stands until another opens it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace nibble::testing {

class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  /// Waits until a thread stands at the gate.
  void wait_for_one() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ > 0; });
  }
  /// Opens it and waits until all who share it are gone, with what they own.
  static void dismiss(std::shared_ptr<Gate>& gate) {
    gate->open();
    const std::weak_ptr<Gate> shared = std::exchange(gate, nullptr);
    while (!shared.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;
  bool open_ = false;
};

}  // namespace nibble::testing
