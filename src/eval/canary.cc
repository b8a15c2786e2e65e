// Decisions in one form.
#include "eval/canary.h"

#include <algorithm>
#include <cctype>

#include "eval/task_check.h"

namespace nibble {
namespace {

/// Members by name, whole numbers without a fraction.
Json in_one_form(const Json& json) {
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (json.is_double()) {
    const double number = json.as_double();
    const bool whole = number >= -kExact && number <= kExact &&
                       number == static_cast<double>(static_cast<int64_t>(number));
    return whole ? Json(static_cast<int64_t>(number)) : json;
  }
  if (json.is_array()) {
    Json list = Json::Array{};
    for (const Json& each : json.as_array()) list.push_back(in_one_form(each));
    return list;
  }
  if (!json.is_object()) return json;
  Json::Object members;
  for (const auto& [key, value] : json.as_object()) members.push_back({key, in_one_form(value)});
  std::ranges::sort(members, {}, &Json::Member::key);
  return Json(std::move(members));
}

/// The value that a text is, or the text itself.
std::string json_form(std::string_view text) {
  constexpr int kDepthMax = 80;
  const auto parsed = parse_json(
      text, "the answer", {.depth_max = kDepthMax, .duplicate_keys = DuplicateKeys::keep_last});
  return parsed.ok() ? in_one_form(parsed.value()).dump() : concat("no JSON: ", Json(text).dump());
}

}  // namespace

std::string decision_of(const TaskItem& item, const TaskAnswer& answer) {
  std::string calls;
  for (const AnsweredCall& call : answer.calls)
    calls += concat(calls.empty() ? "" : ", ", "calls ", call.name, " ", json_form(call.arguments));
  if (!calls.empty()) return calls;
  const std::string_view text = trimmed(answer.content);
  if (item.check == Check::json || item.check == Check::json_schema) return json_form(text);
  const auto letter = item.check == Check::letter ? chosen_letter(text) : std::nullopt;
  return letter ? std::string(1, *letter) : Json(text).dump();
}

bool is_structural(std::string_view token_text) {
  return !token_text.empty() && std::ranges::none_of(token_text, [](unsigned char c) {
    return std::isalnum(c) != 0 || c >= 0x80;
  });
}

}  // namespace nibble
