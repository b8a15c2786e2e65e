// Chat and plain completions; log-probabilities by an echo of prompt and choice.
#include "eval/task_exchange.h"

#include <algorithm>

namespace nibble {
namespace {

constexpr std::string_view kThinkEnd = "</think>";

/// `found` is text of the server, whose line breaks are not those of the error.
Error unreadable(std::string_view expected, std::string_view found) {
  std::string excerpt(found.substr(0, 120));
  std::ranges::replace_if(
      excerpt, [](char c) { return c >= 0 && c < ' '; }, ' ');
  return make_error(
      ErrorCode::corrupt,
      {.what = "the server's answer", .expected = std::string(expected), .found = excerpt});
}

void set_limits(const TaskItem& item, const AskSettings& settings, Json& body) {
  const auto tokens = item.max_tokens ? item.max_tokens : settings.max_tokens;
  if (tokens) body.set("max_tokens", Json(*tokens));
  body.set("temperature", Json(settings.temperature));
  body.set("seed", Json(settings.seed));
}

/// The prompt alone, whose tokens are counted, and the prompt with each choice behind it. Servers
/// echo no prompt without one token that is generated.
void set_choices(const TaskItem& item, Json& body) {
  Json prompts = Json::Array{};
  prompts.push_back(item.prompt);
  for (const std::string& choice : item.choices) prompts.push_back(item.prompt + choice);
  body.set("prompt", std::move(prompts));
  body.set("echo", Json(true));
  body.set("logprobs", Json(1));
  body.set("max_tokens", Json(1));
  body.set("temperature", Json(0.0));
}

std::string text_of(const Json& json, std::string_view key) {
  const Json* value = json.find(key);
  return value != nullptr && value->is_string() ? value->as_string() : std::string();
}

int64_t count_of(const Json& json, std::string_view key) {
  const Json* usage = json.find("usage");
  const Json* value = usage == nullptr ? nullptr : usage->find(key);
  return value != nullptr && value->is_int() ? value->as_int() : 0;
}

std::string without_thinking(std::string text) {
  const size_t end = text.rfind(kThinkEnd);
  return end == std::string::npos ? text : text.substr(end + kThinkEnd.size());
}

Result<std::vector<AnsweredCall>> calls_of(const Json& message) {
  std::vector<AnsweredCall> calls;
  const Json* list = message.find("tool_calls");
  if (list == nullptr || list->is_null()) return calls;
  if (!list->is_array()) return unreadable("a list of tool_calls", list->dump());
  for (const Json& each : list->as_array()) {
    const Json* function = each.find("function");
    if (function == nullptr) return unreadable("tool_calls with a function", each.dump());
    calls.push_back({text_of(*function, "name"), text_of(*function, "arguments")});
  }
  return calls;
}

/// The log-probabilities of an echoed text, without that of the token that was generated.
Result<std::vector<double>> echoed(const Json& choice) {
  const Json* logprobs = choice.find("logprobs");
  const Json* list = logprobs == nullptr ? nullptr : logprobs->find("token_logprobs");
  if (list == nullptr || !list->is_array() || list->as_array().size() < 2)
    return unreadable("logprobs of the echoed prompt", choice.dump());
  std::vector<double> values;
  for (const Json& each : list->as_array()) {
    if (!each.is_number() && !(each.is_null() && values.empty()))
      return unreadable("log-probabilities", each.dump());
    values.push_back(each.is_null() ? 0.0 : each.as_double());
  }
  values.pop_back();
  return values;
}

Result<std::vector<double>> choice_scores(const TaskItem& item, const Json::Array& choices) {
  std::vector<std::vector<double>> texts(item.choices.size() + 1);
  for (const Json& choice : choices) {
    const Json* index = choice.find("index");
    const int64_t at = index != nullptr && index->is_int() ? index->as_int() : -1;
    if (at < 0 || at >= static_cast<int64_t>(texts.size()) || !texts[at].empty())
      return unreadable(concat("indices 0 to ", texts.size() - 1), choice.dump());
    texts[at] = TRY(echoed(choice));
  }
  std::vector<double> scores;
  for (size_t i = 1; i < texts.size(); ++i) {
    if (texts[i].size() <= texts[0].size())
      return unreadable("a choice of more tokens than the prompt alone",
                        concat(texts[i].size(), " and ", texts[0].size(), " tokens"));
    double sum = 0.0;
    for (size_t at = texts[0].size(); at < texts[i].size(); ++at) sum += texts[i][at];
    const bool bytes = item.normalize == Normalize::bytes;
    scores.push_back(bytes ? sum / static_cast<double>(item.choices[i - 1].size()) : sum);
  }
  return scores;
}

}  // namespace

TaskRequest task_request(const TaskItem& item, const AskSettings& settings) {
  TaskRequest request{.path = "/v1/chat/completions", .body = Json::Object{}};
  Json& body = request.body;
  if (!settings.model.empty()) body.set("model", settings.model);
  set_limits(item, settings, body);
  if (item.messages.is_null()) {
    request.path = "/v1/completions";
    body.set("prompt", item.prompt);
    if (item.check == Check::logprob) set_choices(item, body);
    return request;
  }
  body.set("messages", item.messages);
  if (!item.tools.is_null()) body.set("tools", item.tools);
  if (item.thinking)
    body.set("chat_template_kwargs", json_object({{"enable_thinking", Json(*item.thinking)}}));
  if (item.enforce == Enforce::yes)
    body.set(
        "response_format",
        json_object({{"type", "json_schema"},
                     {"json_schema", json_object({{"name", "answer"}, {"schema", item.schema}})}}));
  return request;
}

Result<TaskAnswer> parse_task_answer(const TaskItem& item, std::string_view body) {
  constexpr int kDepthMax = 80;
  const Json json =
      TRY(parse_json(body, "the server's answer",
                     {.depth_max = kDepthMax, .duplicate_keys = DuplicateKeys::keep_last}));
  const Json* choices = json.find("choices");
  if (choices == nullptr || !choices->is_array() || choices->as_array().empty())
    return unreadable("choices", body);
  TaskAnswer answer{.prompt_tokens = count_of(json, "prompt_tokens"),
                    .answer_tokens = count_of(json, "completion_tokens")};
  if (item.check == Check::logprob) {
    answer.scores = TRY(choice_scores(item, choices->as_array()));
    return answer;
  }
  const Json& choice = choices->as_array().front();
  answer.finish = text_of(choice, "finish_reason");
  if (item.messages.is_null()) {
    answer.content = text_of(choice, "text");
    return answer;
  }
  const Json* message = choice.find("message");
  if (message == nullptr || !message->is_object()) return unreadable("a message", choice.dump());
  answer.content = without_thinking(text_of(*message, "content"));
  answer.calls = TRY(calls_of(*message));
  return answer;
}

}  // namespace nibble
