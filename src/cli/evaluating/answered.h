// The answers of a model to all items, with the tokens of prompt and answer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/evaluating/asked_model.h"
#include "eval/task_exchange.h"

namespace nibble {

struct Answered {
  TaskAnswer answer;
  std::vector<int32_t> prompt_ids;  // empty: the server does not tell them
  std::vector<int32_t> answer_ids;
};

/// The words of the line of progress.
struct AskingWords {
  std::string name;
  std::string unit;
};

/// Asks every item at temperature 0. Errors: unsupported for an item that the model refuses,
/// cancelled, those of the model.
Result<std::vector<Answered>> answers_of(AskedModel& model, const std::vector<TaskItem>& items,
                                         const AskingWords& words, Terminal& terminal);

}  // namespace nibble
