// Whole answers of every route, with their headers, against tests/golden/answers: names of members,
// their order and all values but those of time and chance. A failing test names the file to take
// over where a change is meant.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "server/testing/test_server.h"
#include "testing/golden_text.h"

namespace nibble {
namespace {

using namespace testing;

constexpr const char* kScript =
    "why</think>\n\nI look.<tool_call>\n<function=w>\n<parameter=at>\nRome\n</parameter>\n"
    "</function>\n</tool_call>";

/// Members whose values are of time, of chance, or cut as the tokens came.
constexpr std::array<std::string_view, 26> kVarying = {"id",
                                                       "created",
                                                       "created_at",
                                                       "completed_at",
                                                       "item_id",
                                                       "call_id",
                                                       "response_id",
                                                       "started_at",
                                                       "sequence_number",
                                                       "delta",
                                                       "text",
                                                       "thinking",
                                                       "partial_json",
                                                       "prompt_ms",
                                                       "predicted_ms",
                                                       "reasoning",
                                                       "reasoning_content",
                                                       "arguments",
                                                       "signature",
                                                       "predicted_per_second",
                                                       "content",
                                                       "tool_use_id",
                                                       "message_id",
                                                       "uptime_seconds",
                                                       "time_ms",
                                                       "system_fingerprint"};
constexpr size_t kMadeIdLeast = 12;  // shorter ones are names

enum class Numbers : uint8_t { kept, left_out };
enum class Texts : uint8_t { kept, left_out };

void mask(Json& value, Numbers numbers, Texts texts) {
  if (value.is_array())
    for (Json& each : value.as_array()) mask(each, numbers, texts);
  if (value.is_number() && numbers == Numbers::left_out) value = Json("#");
  if (!value.is_object()) return;
  for (Json::Member& member : value.as_object()) {
    const bool varies = std::ranges::find(kVarying, member.key) != kVarying.end();
    const bool made = member.key.ends_with("id") || member.key == "signature" ||
                      member.key == "system_fingerprint";
    const bool text =
        member.value.is_string() &&
        (texts == Texts::left_out || (made && member.value.as_string().size() >= kMadeIdLeast));
    if (varies && (text || member.value.is_number()))
      member.value = Json("#");
    else
      mask(member.value, numbers, texts);
  }
}

std::string masked(std::string_view text, Numbers numbers, Texts texts) {
  auto parsed = parse_json(text, "an answer");
  if (!parsed.ok()) return std::string(text);
  mask(parsed.value(), numbers, texts);
  return texts == Texts::left_out ? parsed.value().dump() : parsed.value().dump_pretty();
}

/// The events of a stream; equal ones in a row once.
std::string masked_events(std::string_view body) {
  std::string out, last;
  while (!body.empty()) {
    const size_t end = std::min(body.find('\n'), body.size() - 1);
    std::string_view line = body.substr(0, end);
    body.remove_prefix(end + 1);
    if (line.empty() || line.find_first_not_of("0123456789abcdef\r") == line.npos) continue;
    std::string event(line);
    // The counts of the first event are those of the time at which it is written.
    const bool first = line.find("message_start") != line.npos;
    if (line.starts_with("data: {"))
      event = concat("data: ", masked(line.substr(6), first ? Numbers::left_out : Numbers::kept,
                                      Texts::left_out));
    if (event == last || (event.starts_with("event: ") && out.ends_with(concat(last, "\n")) &&
                          out.find(concat(event, "\n", last, "\n")) != std::string::npos))
      continue;
    out += concat(event, "\n");
    last = std::move(event);
  }
  return out;
}

/// Names and labels of metrics, without their values.
std::string without_values(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1);
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    out += concat(line.starts_with('#') ? line : line.substr(0, line.rfind(' ')), "\n");
  }
  return out;
}

class Answers : public ServerTest {
 protected:
  void add(std::string_view title, const std::string& request, Numbers numbers = Numbers::kept) {
    auto [status, body] = ask(request);
    found_ += concat("==== ", title, "\n");
    for (std::string_view head = head_; !head.empty();) {
      const size_t end = std::min(head.find("\r\n"), head.size());
      const std::string_view line = head.substr(0, end);
      if (!line.starts_with("Date:") && !line.starts_with("Content-Length:") &&
          !line.starts_with("x-request-id:") && !line.starts_with("ETag:"))
        found_ += concat(line, "\n");
      head.remove_prefix(std::min(head.size(), end + 2));
    }
    const bool streamed = head_.find("text/event-stream") != std::string::npos;
    found_ += concat("\n",
                     streamed                  ? masked_events(body)
                     : title == "GET /metrics" ? without_values(body)
                                               : masked(body, numbers, Texts::kept),
                     "\n");
  }
  void expect_golden(const std::string& name) {
    const Json version = parse_json(ask(get("/version")).second, "version").value();
    const std::string quoted = concat("\"", at(version, "version").as_string(), "\"");
    for (size_t place = found_.find(quoted); place != found_.npos; place = found_.find(quoted))
      found_.replace(place, quoted.size(), "\"VERSION\"");
    expect_golden_text(concat("answers/", name, ".txt"), found_);
  }
  std::string found_;
};

TEST_F(Answers, OfChatsAndCompletions) {
  start(kScript);
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"w","parameters":)"
                            R"({"type":"object","properties":{"at":{"type":"string"}}}}}])";
  const std::string hi = R"({"messages":[{"role":"user","content":"hi"}])";
  add("chat", post(kChat, concat(hi, ",", tools, R"(,"max_tokens":500})")));
  add("chat, two choices with log-probabilities",
      post(kChat, concat(hi, R"(,"n":2,"logprobs":true,"top_logprobs":2,"max_tokens":3})")));
  add("chat, streamed", post(kChat, concat(hi, ",", tools, R"(,"stream":true,"max_tokens":500,)",
                                           R"("stream_options":{"include_usage":true}})")));
  add("chat, continuous usage and return_token_ids",
      post(kChat, concat(hi, R"(,"max_tokens":4,"return_token_ids":true,"reasoning":false})")));
  add("completion", post(kCompletions, R"({"prompt":["a","b"],"max_tokens":3,"echo":true,)"
                                       R"("logprobs":1})"));
  add("completion, streamed",
      post(kCompletions, R"({"prompt":"a","max_tokens":3,"stream":true,"return_progress":true})"));
  add("completion, a stop", post(kCompletions, R"({"prompt":"a","max_tokens":9,"stop":["hy"]})"));
  expect_golden("openai");
}

TEST_F(Answers, OfMessagesAndResponses) {
  start(kScript);
  const std::string message = R"({"model":"claude-any","max_tokens":500,"messages":)"
                              R"([{"role":"user","content":"hi"}],"thinking":{"type":"adaptive"},)"
                              R"("tools":[{"name":"w","input_schema":{"type":"object",)"
                              R"("properties":{"at":{"type":"string"}}}}])";
  const std::string response = R"({"input":"hi","tools":[{"type":"function","name":"w",)"
                               R"("parameters":{"type":"object","properties":)"
                               R"({"at":{"type":"string"}}}}],"max_output_tokens":500)";
  add("message", post("/v1/messages", message + "}"));
  add("message, streamed", post("/v1/messages", message + R"(,"stream":true})"));
  add("message, its tokens", post("/v1/messages/count_tokens", message + "}"));
  add("message, refused", post("/v1/messages", R"({"model":"m","messages":[]})"));
  add("response", post("/v1/responses", response + "}"));
  add("response, streamed", post("/v1/responses", response + R"(,"stream":true})"));
  add("response, cut", post("/v1/responses", R"({"input":"hi","max_output_tokens":2})"));
  add("response, its tokens", post("/v1/responses/input_tokens", response + "}"));
  add("response, refused", post("/v1/responses", R"({"input":7})"));
  expect_golden("other_apis");
}

TEST_F(Answers, OfTheOtherRoutes) {
  start("x");
  for (const char* path :
       {"/health", "/live", "/ready", "/version", "/v1/models", "/v1/models/tiny", "/v1/models/no",
        "/is_sleeping", "/metrics", "/nothing", "/v1/chat/completions", "/v1/responses/none"})
    add(concat("GET ", path), get(path));
  for (const char* path : {"/load", "/stats"})
    add(concat("GET ", path), get(path), Numbers::left_out);
  for (const auto& [path, body] :
       {std::pair("/tokenize", R"({"prompt":"hi you"})"),
        std::pair("/detokenize", R"({"tokens":[1,2]})"),
        std::pair("/tokenize", R"({"messages":[{"role":"user","content":"hi"}]})"),
        std::pair("/apply-template", R"({"messages":[{"role":"user","content":"hi"}]})"),
        std::pair("/v1/embeddings", R"({"input":"a"})"), std::pair("/v1/requests/no/cancel", "{}"),
        std::pair("/v1/chat/completions", "{"), std::pair("/v1/chat/completions", R"({"a":1})"),
        std::pair("/v1/chat/completions", R"({"messages":[],"temperature":"x"})")})
    add(concat("POST ", path, " ", body), post(path, body));
  expect_golden("routes");
}

}  // namespace
}  // namespace nibble
