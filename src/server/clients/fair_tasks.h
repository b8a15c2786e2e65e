// FairTasks: a few threads that run the tasks of many clients, at most one of a client at a time
// and the clients in turn, so that one client's long tasks never hold up another's. Bounded: a full
// queue refuses.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace nibble {

class FairTasks {
 public:
  struct Limits {
    size_t threads = 4;
    size_t waiting_max = 4096;  // tasks of all clients that may wait
    size_t waiting_of_a_client_max = 1024;
  };
  explicit FairTasks(const Limits& limits) : limits_(limits) {
    for (size_t i = 0; i < limits.threads; ++i) threads_.emplace_back([this] { run(); });
  }
  /// Ends what runs and drops what waits.
  ~FairTasks() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
      turns_.clear();
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  FairTasks(const FairTasks&) = delete;
  FairTasks& operator=(const FairTasks&) = delete;

  /// False, and the task is dropped, if there is no room for it.
  bool post(uint64_t client, std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      if (waiting_ >= limits_.waiting_max) return false;
      Client& its = clients_[client];
      if (its.tasks.size() >= limits_.waiting_of_a_client_max) return false;
      if (its.tasks.empty() && !its.running) turns_.push_back(client);
      its.tasks.push_back(std::move(task));
      ++waiting_;
    }
    changed_.notify_one();
    return true;
  }

 private:
  struct Client {
    std::deque<std::function<void()>> tasks;
    bool running = false;
  };

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return !turns_.empty() || ending_; });
      if (ending_) return;
      const uint64_t client = turns_.front();
      turns_.pop_front();
      auto task = std::move(clients_[client].tasks.front());
      clients_[client].tasks.pop_front();
      clients_[client].running = true;
      --waiting_;
      lock.unlock();
      task();
      task = nullptr;  // what it holds goes without the lock
      lock.lock();
      Client& its = clients_[client];
      its.running = false;
      if (its.tasks.empty())
        clients_.erase(client);
      else
        turns_.push_back(client);
      changed_.notify_all();
    }
  }

  Limits limits_;
  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::map<uint64_t, Client> clients_;  // those that run or wait
  std::deque<uint64_t> turns_;          // those that wait and do not run
  size_t waiting_ = 0;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace nibble
