// TaskThread: one thread that runs tasks in order, so that long parsing never holds up the sockets.
// Bounded: a full queue refuses.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace nibble {

class TaskThread {
 public:
  explicit TaskThread(size_t waiting_max) : waiting_max_(waiting_max) {
    thread_ = std::thread([this] { run(); });
  }
  /// Runs what is queued, then ends.
  ~TaskThread() {
    {
      std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  /// False, and the task is dropped, if the queue is full.
  bool post(std::function<void()> task) {
    {
      std::lock_guard lock(mutex_);
      if (tasks_.size() >= waiting_max_) return false;
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
    return true;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return ending_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const auto task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  size_t waiting_max_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace nibble
