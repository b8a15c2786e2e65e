// Tasks as lines of JSON: a question, how its answer is checked, and the right answer. The form is
// described in docs/evaluation.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "eval/schema_validity.h"

namespace nibble {

enum class Check : uint8_t {
  exact,        // the text is one of the answers
  json,         // the text is JSON of the answer's value
  json_schema,  // the text is JSON that obeys the schema
  tool_call,    // one call, of the answer's name and arguments
  tool_schema,  // calls, all of tools that are offered and with arguments that obey their schemas
  letter,       // the letter that the text chooses
  logprob,      // the choice with the highest log-probability after the prompt
  none,         // run through and not scored
};

/// logprob: sums are compared as they are, or each divided by the bytes of its choice.
enum class Normalize : uint8_t { none, bytes };
/// json_schema: the server is asked to hold the answer to the schema, or is not.
enum class Enforce : uint8_t { no, yes };

struct OfferedTool {
  std::string name;
  SchemaValidity parameters;
};

struct TaskItem {
  std::string id;
  std::string task;
  Check check = Check::exact;
  std::vector<std::string> texts;  // exact: right answers; letter: one letter
  Json value;                      // json; tool_call: {"name", "arguments"}
  int64_t right_choice = 0;        // logprob
  Json messages;                   // null: `prompt` is continued as plain text
  std::string prompt;
  Json tools;  // null: none
  std::vector<std::string> choices;
  Json schema;  // of json_schema
  std::optional<SchemaValidity> validity;
  std::vector<OfferedTool> offered;  // of tool_schema
  std::optional<bool> thinking;
  std::optional<int64_t> max_tokens;
  Normalize normalize = Normalize::none;
  Enforce enforce = Enforce::no;
  std::string digest;  // of the line, to see in results that it has changed
};

/// One line. `place` begins messages: "sums.jsonl line 3". Errors: corrupt for what is no JSON;
/// invalid_argument for an unknown key, a value of another kind, an answer that does not fit.
Result<TaskItem> parse_task_line(std::string_view line, std::string_view place);

/// All lines of the files that are not blank. Errors: those of the lines; invalid_argument for an
/// id that stands twice and for no line at all; io.
Result<std::vector<TaskItem>> read_tasks(std::span<const std::string> paths);

/// The items of a text of lines. `name` begins messages. Errors: as read_tasks.
Result<std::vector<TaskItem>> parse_tasks(std::string_view text, std::string_view name);

}  // namespace nibble
