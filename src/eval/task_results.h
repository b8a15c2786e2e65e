// Results of a run of tasks as a file that only grows: a line that says what was asked, then a line
// for each answer. A later run of the same command goes on behind the last whole line.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "eval/task_check.h"
#include "eval/task_item.h"

namespace nibble {

struct TaskResult {
  std::string id;
  std::string digest;  // of the item
  TaskAnswer answer;
  Judgement judgement;
};

/// A line with its line break.
std::string result_line(const TaskItem& item, const TaskResult& result);

class TaskResults {
 public:
  /// Continues or begins the file at `path`. `head` says who was asked and how. Errors: io;
  /// invalid_argument when the file is none of these, another run writes to it, or it has another
  /// head.
  static Result<TaskResults> open(const std::string& path, const Json& head);
  /// The results of an earlier run, to compare with. Errors: not_found, io, invalid_argument.
  static Result<TaskResults> read(const std::string& path);
  /// Keeps results in memory alone.
  static TaskResults in_memory() { return TaskResults("", -1); }

  TaskResults(TaskResults&& other) noexcept;
  TaskResults& operator=(TaskResults&&) = delete;
  ~TaskResults();

  const Json& head() const { return head_; }
  /// The result of this item, or nullptr. Errors: invalid_argument when the item has changed since.
  Result<const TaskResult*> find(const TaskItem& item) const;
  Result<void> add(const TaskItem& item, TaskResult result);

 private:
  TaskResults(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  /// Reads a whole file; returns the bytes up to the end of its last whole line.
  Result<size_t> read_lines(std::string_view text);
  Result<void> read_line(std::string_view line, std::string_view place);
  Result<void> begin(const Json& head);
  Result<void> write(std::string_view line) const;

  std::string path_;
  int descriptor_;  // -1: nothing is written
  Json head_;
  std::map<std::string, TaskResult, std::less<>> results_;
};

}  // namespace nibble
