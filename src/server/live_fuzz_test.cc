// Mutated requests of every API over a socket: no crash, no hang, no 5xx, and an answer to a sound
// request that is the same before and after. 10,000 of them: --gtest_also_run_disabled_tests.
#include <gtest/gtest.h>

#include <random>

#include "server/testing/test_server.h"

namespace nibble {
namespace {

using testing::kChat;
using testing::post;

struct Seed {
  const char* path;
  const char* body;
};
constexpr Seed kSeeds[] = {
    {kChat, R"({"model":"tiny","messages":[{"role":"system","content":"s"},{"role":"user",)"
            R"("content":"hi"}],)"
            R"("max_tokens":20,"temperature":0.7,"top_p":0.9,"top_k":5,"min_p":0.1,"seed":3,"n":2,)"
            R"("stop":["x"],"logprobs":true,"top_logprobs":2,"presence_penalty":0.5,)"
            R"("logit_bias":{"97":1}})"},
    {kChat,
     R"({"messages":[{"role":"user","content":[{"type":"text","text":"hi","cache_control":)"
     R"({"type":"ephemeral"}}]},{"role":"assistant","content":null,"reasoning":"r","tool_calls":)"
     R"([{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},)"
     R"({"role":"tool","tool_call_id":"c","content":"done"}],"stream":true,"max_tokens":30,)"
     R"("stream_options":{"include_usage":true},"tools":[{"type":"function",)"
     R"("function":{"name":"f",)"
     R"("strict":true,"parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}}],)"
     R"("tool_choice":"auto","parallel_tool_calls":false,"answer_reserve":3,)"
     R"("return_progress":true})"},
    {kChat,
     R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":40,"response_format":{"type":)"
     R"("json_schema","json_schema":{"name":"n","schema":{"type":"object",)"
     R"("properties":{"a":{"enum":)"
     R"([1,2]}},"required":["a"]}}},"chat_template_kwargs":{"enable_thinking":false}})"},
    {"/v1/completions",
     R"({"prompt":["one",[104,105]],"max_tokens":8,"echo":true,"logprobs":2,"n":2,"stream":true,)"
     R"("repetition_detection":{"max_pattern_size":4,"min_count":3},"min_tokens":2})"},
    {"/v1/completions",
     R"({"prompt":[97,98,99],"max_tokens":4,"prompt_logprobs":1,"priority":-3})"},
    {"/v1/messages",
     R"({"model":"claude-x","max_tokens":30,"system":[{"type":"text","text":"s"}],"messages":[)"
     R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"r"},)"
     R"({"type":"text","text":"hi"}]}],"thinking":{"type":"enabled","budget_tokens":9},)"
     R"("stream":true,"tools":[{"name":"f","input_schema":{"type":"object"}}],)"
     R"("tool_choice":{"type":"auto"}})"},
    {"/v1/responses",
     R"({"input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]},{"type":)"
     R"("function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output",)"
     R"("call_id":"c","output":"o"}],"instructions":"i","max_output_tokens":20,"stream":true,)"
     R"("reasoning":{"effort":"low"},"text":{"format":{"type":"text"}},"store":true})"},
    {"/v1/responses", R"({"input":"hi","previous_response_id":"resp_0","max_output_tokens":9})"},
    {"/v1/messages/count_tokens", R"({"messages":[{"role":"user","content":"hi"}]})"},
    {"/tokenize", R"({"prompt":"abc","add_special_tokens":true})"},
    {"/detokenize", R"({"tokens":[97,98]})"},
    {"/apply-template", R"({"messages":[{"role":"user","content":"hi"}]})"},
};

/// Values that parsers stumble over.
constexpr const char* kValues[] = {"null",
                                   "true",
                                   "-1",
                                   "0",
                                   "1e308",
                                   "-1e308",
                                   "9223372036854775807",
                                   "18446744073709551616",
                                   "0.0001",
                                   "\"\"",
                                   "\"\\u0000\"",
                                   "\"\\ud800\"",
                                   "\"\\ud83d\\ude00\"",
                                   "[]",
                                   "{}",
                                   "[[[[[[]]]]]]",
                                   "[null]",
                                   "{\"type\":\"text\"}",
                                   "\"<think></tool_call><|im_end|>\"",
                                   "[1,2,3]",
                                   "1.5",
                                   "\"auto\"",
                                   "\"required\"",
                                   "{\"\":{}}",
                                   "[\"\",\"\"]",
                                   "2147483648",
                                   "\"tiny:instruct-general\""};

using Random = std::mt19937;

/// Another value, name, or nothing, somewhere in `json`.
void change(Json& json, Random& random) {
  const auto parsed = parse_json(kValues[random() % std::size(kValues)], "a value");
  const Json value = parsed.ok() ? parsed.value() : Json();
  if (json.is_object() && !json.as_object().empty()) {
    auto& members = json.as_object();
    const size_t at = random() % members.size();
    switch (random() % 6) {
      case 0:
        members.erase(members.begin() + static_cast<ptrdiff_t>(at));
        return;
      case 1:
        members[at].value = value;
        return;
      case 2:
        members.push_back({members[random() % members.size()].key + "_", value});
        return;
      default:
        return change(members[at].value, random);
    }
  }
  if (json.is_array() && !json.as_array().empty()) {
    auto& items = json.as_array();
    const size_t at = random() % items.size();
    if (random() % 4 == 0)
      items.push_back(items[at]);
    else if (random() % 4 == 0)
      items.erase(items.begin() + static_cast<ptrdiff_t>(at));
    else
      change(items[at], random);
    return;
  }
  json = value;
}

std::string mutated(const Seed& seed, Random& random) {
  std::string body = seed.body;
  if (random() % 2 == 0) {
    Json json = parse_json(body, "a seed").value();
    for (size_t times = 1 + random() % 3; times > 0; --times) change(json, random);
    body = json.dump();
  }
  // A value by a nastier one, as text, so that what no parsed value can be is tried too.
  if (random() % 3 == 0) {
    const size_t colon = body.find(':', random() % body.size());
    const size_t end = body.find_first_of(",}]", colon);
    if (colon != std::string::npos && end != std::string::npos)
      body.replace(colon + 1, end - colon - 1, kValues[random() % std::size(kValues)]);
  }
  for (size_t times = random() % 4; times > 1 && !body.empty(); --times) {
    const size_t at = random() % body.size();
    switch (random() % 4) {
      case 0:
        body[at] = static_cast<char>(random() % 256);
        break;
      case 1:
        body.erase(at, random() % 9);
        break;
      case 2:
        body.insert(at, body.substr(random() % body.size(), random() % 20));
        break;
      default:
        body.resize(at);
    }
  }
  return body;
}

class LiveFuzz : public testing::ServerTest {
 protected:
  void fuzz(int requests) {
    ServerOptions options;
    options.response_store.responses_max = 16;
    start(
        "why\n</think>\n\n<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n"
        "</tool_call>",
        options);
    const std::string canary = said();
    Random random(20260101);
    int answered = 0;
    for (int i = 0; i < requests; ++i) {
      const Seed& seed = kSeeds[random() % std::size(kSeeds)];
      const std::string body = mutated(seed, random);
      const auto [status, answer] = ask(post(seed.path, body));
      ASSERT_GE(status, 200) << "request " << i << " to " << seed.path << "\n" << body;
      ASSERT_LT(status, 500) << "request " << i << " to " << seed.path << "\n" << body << answer;
      answered += status == 200 ? 1 : 0;
    }
    EXPECT_GT(answered, requests / 10);  // mutations that leave something to do
    EXPECT_LT(answered, requests * 9 / 10);
    EXPECT_EQ(said(), canary);
    EXPECT_EQ(ask(testing::get("/load")).second, R"({"server_load":0})");
  }
  std::string said() { return choice(chat(R"(,"seed":1,"temperature":0)")).dump(); }
};

TEST_F(LiveFuzz, TwoThousandRequests) { fuzz(2000); }
TEST_F(LiveFuzz, DISABLED_TenThousandRequests) { fuzz(10'000); }

}  // namespace
}  // namespace nibble
