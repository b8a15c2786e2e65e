// Judges an answer by the check of its item. Rules: docs/evaluation.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "eval/task_exchange.h"
#include "eval/task_item.h"

namespace nibble {

enum class Verdict : uint8_t { wrong, right, unscored };
std::string_view verdict_name(Verdict verdict);

struct Judgement {
  Verdict verdict = Verdict::wrong;
  std::string why;  // one line about a wrong answer; else empty
};

/// Errors: unsupported where the answer cannot be judged (SchemaValidity::fault_of).
Result<Judgement> judge(const TaskItem& item, const TaskAnswer& answer);

/// The letter that a text chooses: it is the letter alone, begins with it ("B) ..", "(B)", "B."),
/// or names it last after "answer is" or "answer:". Nothing: none of these.
std::optional<char> chosen_letter(std::string_view text);

/// Without blanks and line breaks at its ends.
std::string_view trimmed(std::string_view text);

/// Equal as JSON values: members in any order, 1 equals 1.0, true does not equal 1.
bool same_value(const Json& a, const Json& b);

}  // namespace nibble
