// One function for each check.
#include "eval/task_check.h"

#include <algorithm>
#include <cctype>

namespace nibble {
namespace {

constexpr int kDepthMax = 80;
constexpr size_t kShownBytes = 200;

/// At most kShownBytes of a text as JSON, cut between characters.
std::string shown(std::string_view text) {
  size_t end = std::min(text.size(), kShownBytes);
  while (end < text.size() && end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
    --end;
  return Json(text.substr(0, end)).dump();
}

Judgement right() { return {.verdict = Verdict::right}; }
Judgement wrong(std::string why) { return {.verdict = Verdict::wrong, .why = std::move(why)}; }

Result<Json> parse_answer(std::string_view text) {
  return parse_json(trimmed(text), "the answer",
                    {.depth_max = kDepthMax, .duplicate_keys = DuplicateKeys::keep_last});
}

Judgement judge_exact(const TaskItem& item, const TaskAnswer& answer) {
  const std::string_view said = trimmed(answer.content);
  if (std::ranges::find(item.texts, said) != item.texts.end()) return right();
  return wrong(concat("expected ", shown(item.texts.front()), ", found ", shown(said)));
}

Judgement judge_json(const TaskItem& item, const TaskAnswer& answer) {
  const auto said = parse_answer(answer.content);
  if (!said.ok()) return wrong(said.error().message);
  if (same_value(said.value(), item.value)) return right();
  return wrong(concat("expected ", shown(item.value.dump()), ", found ", shown(answer.content)));
}

Result<Judgement> judge_schema(const TaskItem& item, const TaskAnswer& answer) {
  const auto said = parse_answer(answer.content);
  if (!said.ok()) return wrong(said.error().message);
  const std::string fault = TRY(item.validity->fault_of(said.value()));
  return fault.empty() ? right() : wrong(fault);
}

Judgement judge_call(const TaskItem& item, const TaskAnswer& answer) {
  if (answer.calls.size() != 1)
    return wrong(concat("expected one call, found ", answer.calls.size()));
  const AnsweredCall& call = answer.calls.front();
  const auto arguments = parse_answer(call.arguments);
  const bool same = arguments.ok() && item.value.find("name")->as_string() == call.name &&
                    same_value(arguments.value(), *item.value.find("arguments"));
  if (same) return right();
  return wrong(concat("expected ", shown(item.value.dump()), ", found ", shown(call.name), " with ",
                      shown(call.arguments)));
}

Result<Judgement> judge_calls(const TaskItem& item, const TaskAnswer& answer) {
  if (answer.calls.empty()) return wrong("expected a call, found none");
  for (const AnsweredCall& call : answer.calls) {
    const auto tool = std::ranges::find(item.offered, call.name, &OfferedTool::name);
    if (tool == item.offered.end()) return wrong(concat("no tool is called ", shown(call.name)));
    const auto arguments = parse_answer(call.arguments);
    if (!arguments.ok()) return wrong(arguments.error().message);
    if (!arguments.value().is_object()) return wrong("expected an object of arguments");
    const std::string fault = TRY(tool->parameters.fault_of(arguments.value()));
    if (!fault.empty()) return wrong(fault);
  }
  return right();
}

Judgement judge_letter(const TaskItem& item, const TaskAnswer& answer) {
  const auto letter = chosen_letter(answer.content);
  if (letter && item.texts.front()[0] == *letter) return right();
  return wrong(concat("expected ", item.texts.front(), ", found ",
                      letter ? std::string(1, *letter) : shown(answer.content)));
}

/// The first of the highest scores is chosen.
Judgement judge_scores(const TaskItem& item, const TaskAnswer& answer) {
  const auto best = std::ranges::max_element(answer.scores);
  const int64_t chosen = best - answer.scores.begin();
  if (chosen == item.right_choice) return right();
  return wrong(concat("expected choice ", item.right_choice, ", found ", chosen));
}

bool is_letter(std::string_view text, size_t at) {
  return at < text.size() && text[at] >= 'A' && text[at] <= 'Z';
}

bool in_word(std::string_view text, size_t at) {
  return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) != 0 ||
                              static_cast<unsigned char>(text[at]) >= 0x80);
}

/// The letter at `at`, behind blanks and the marks ( [ * $, if no word begins there.
std::optional<char> letter_at(std::string_view text, size_t at) {
  while (at < text.size() && std::string_view(" \t\n([*$").find(text[at]) != std::string_view::npos)
    ++at;
  if (!is_letter(text, at) || in_word(text, at + 1)) return std::nullopt;
  return text[at];
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::string_view verdict_name(Verdict verdict) {
  constexpr std::string_view kNames[] = {"wrong", "right", "unscored"};
  return kNames[static_cast<size_t>(verdict)];
}

std::optional<char> chosen_letter(std::string_view text) {
  text = trimmed(text);
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (size_t at = lower.rfind("answer"); at != std::string::npos;
       at = at == 0 ? std::string::npos : lower.rfind("answer", at - 1)) {
    for (const std::string_view word : {"answer is:", "answer is", "answer:"})
      if (std::string_view(lower).substr(at).starts_with(word))
        if (const auto letter = letter_at(text, at + word.size())) return letter;
  }
  const auto first = letter_at(text, 0);
  const size_t behind = first ? text.find(*first) + 1 : 0;
  // "A dog" begins with a word, "A) dog" and "A" with a letter.
  const bool alone =
      first && (behind >= text.size() ||
                std::string_view(").]*:,\n$").find(text[behind]) != std::string_view::npos);
  return alone ? first : std::nullopt;
}

bool same_value(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number())
    return a.is_int() && b.is_int() ? a.as_int() == b.as_int() : a.as_double() == b.as_double();
  if (a.is_array() && b.is_array())
    return std::ranges::equal(a.as_array(), b.as_array(), same_value);
  if (!a.is_object() || !b.is_object()) return a == b;
  if (a.as_object().size() != b.as_object().size()) return false;
  return std::ranges::all_of(a.as_object(), [&](const Json::Member& member) {
    const Json* other = b.find(member.key);
    return other != nullptr && same_value(member.value, *other);
  });
}

Result<Judgement> judge(const TaskItem& item, const TaskAnswer& answer) {
  switch (item.check) {
    case Check::exact:
      return judge_exact(item, answer);
    case Check::json:
      return judge_json(item, answer);
    case Check::json_schema:
      return judge_schema(item, answer);
    case Check::tool_call:
      return judge_call(item, answer);
    case Check::tool_schema:
      return judge_calls(item, answer);
    case Check::letter:
      return judge_letter(item, answer);
    case Check::logprob:
      return judge_scores(item, answer);
    case Check::none:
      break;
  }
  return Judgement{.verdict = Verdict::unscored};
}

}  // namespace nibble
