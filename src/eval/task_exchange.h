// An item as a request of an OpenAI-compatible server, and what such a server answers. It knows no
// transport.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "eval/task_item.h"

namespace nibble {

struct AskSettings {
  std::string model;  // empty: the server has one only
  double temperature = 0.0;
  int64_t seed = 0;
  std::optional<int64_t> max_tokens;  // of items that say nothing
};

struct TaskRequest {
  std::string path;  // "/v1/chat/completions"
  Json body;
};
TaskRequest task_request(const TaskItem& item, const AskSettings& settings);

struct AnsweredCall {
  std::string name;
  std::string arguments;  // text, which may be no JSON
};

struct TaskAnswer {
  std::string content;  // behind </think>, if that stands in it
  std::vector<AnsweredCall> calls;
  std::string finish;          // "stop", "length", ...
  std::vector<double> scores;  // logprob: of each choice, in nats
  int64_t prompt_tokens = 0;   // as the server counts them; 0: it does not say
  int64_t answer_tokens = 0;
};

/// Reads the body of an answer with status 200 to task_request(item). Errors: corrupt.
Result<TaskAnswer> parse_task_answer(const TaskItem& item, std::string_view body);

}  // namespace nibble
