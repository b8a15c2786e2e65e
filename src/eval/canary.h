// The canary: a fixed set of short decisions that rounding has been seen to flip, what counts as
// the same decision, and which tokens carry the structure of an answer.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "eval/task_exchange.h"
#include "eval/task_item.h"

namespace nibble {

struct BuiltinTasks {
  std::string_view name;
  std::string_view text;  // lines as parse_tasks takes them
};
/// One text, made by tools/eval/make_canary.py.
std::span<const BuiltinTasks> builtin_canary();

/// An answer's decision, as text that is the same for the same decision: the letter, the value of
/// JSON with its members in order, the tool with its arguments, else the trimmed text.
std::string decision_of(const TaskItem& item, const TaskAnswer& answer);

/// True for the text of a token without letters and digits: braces, quotes, commas, line breaks.
bool is_structural(std::string_view token_text);

}  // namespace nibble
