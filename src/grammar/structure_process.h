// StructureProcess: this process's side of the worker that compiles structures. It starts the
// worker with the first structure, again if it has ended, and ends it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/structure_messages.h"

namespace nibble {

class StructureProcess {
 public:
  struct Answer {
    CompileEnd end = CompileEnd::crashed;
    std::string bytes;  // what follows the end
  };
  /// `command`: the program and its words; it runs run_structure_worker(). `setup`: the worker's
  /// first message.
  StructureProcess(std::vector<std::string> command, std::string setup)
      : command_(std::move(command)), setup_(std::move(setup)) {}
  /// No call may be under way.
  ~StructureProcess();
  StructureProcess(const StructureProcess&) = delete;
  StructureProcess& operator=(const StructureProcess&) = delete;

  /// Any thread, several at once. `source`: its bytes. `abandoned` is asked every few milliseconds;
  /// once it is true the child is killed. Errors: cancelled then; io, where no worker can be
  /// started.
  Result<Answer> compile(std::string_view source, const std::function<bool()>& abandoned);

  /// The worker, or -1. For tests.
  pid_t worker() const;

 private:
  /// The socket of a new child of the worker.
  Result<int> begin();
  Result<void> hand_over(int child_end);
  Result<void> start_worker();
  void end_worker();
  /// Looks if the worker has ended by itself.
  enum class Worker : uint8_t { runs, ended };
  Worker look_at_worker();

  std::vector<std::string> command_;
  std::string setup_;
  mutable std::mutex mutex_;  // guards everything below
  pid_t worker_ = -1;
  int control_ = -1;
};

}  // namespace nibble
