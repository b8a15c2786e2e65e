// Every bound on a request's fields, from one below it to one above; and a reader that stops.
#include <gtest/gtest.h>

#include <functional>

#include "server/test_server.h"

namespace nibble {
namespace {

using testing::post;
using testing::RawClient;

constexpr size_t kBound = 6;

std::string repeated(std::string_view item, size_t count) {
  std::string list;
  for (size_t i = 0; i < count; ++i) list += concat(i > 0 ? "," : "", item);
  return list;
}

std::string chat_with(const std::string& fields) {
  return concat(R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":1)", fields, "}");
}

struct LimitCase {
  const char* name;
  void (*set)(RequestLimits& limits);
  std::function<std::string(size_t)> body;  // that uses so much of it
};

const LimitCase kCases[] = {
    {"nesting deeper", [](RequestLimits& l) { l.json_depth_max = kBound; },
     [](size_t n) {
       return chat_with(concat(",\"x\":", std::string(n - 1, '['), "1", std::string(n - 1, ']')));
     }},
    {"messages", [](RequestLimits& l) { l.messages_max = kBound; },
     [](size_t n) {
       return concat(R"({"max_tokens":1,"messages":[)",
                     repeated(R"({"role":"user","content":"hi"})", n), "]}");
     }},
    {"tools", [](RequestLimits& l) { l.tools_max = kBound; },
     [](size_t n) {
       return chat_with(concat(",\"tools\":[",
                               repeated(R"({"type":"function","function":{"name":"f"}})", n), "]"));
     }},
    {"n", [](RequestLimits& l) { l.choices_max = kBound; },
     [](size_t n) { return chat_with(concat(",\"n\":", n)); }},
    {"top_logprobs", [](RequestLimits& l) { l.logprobs_max = kBound; },
     [](size_t n) { return chat_with(concat(",\"logprobs\":true,\"top_logprobs\":", n)); }},
    {"stop", [](RequestLimits& l) { l.stop_strings_max = kBound; },
     [](size_t n) { return chat_with(concat(",\"stop\":[", repeated("\"a\"", n), "]")); }},
    {"stop", [](RequestLimits& l) { l.stop_bytes_max = kBound; },
     [](size_t n) { return chat_with(concat(",\"stop\":[\"", std::string(n, 'a'), "\"]")); }},
    {"logit_bias", [](RequestLimits& l) { l.logit_bias_max = kBound; },
     [](size_t n) {
       std::string entries;
       for (size_t i = 0; i < n; ++i) entries += concat(i > 0 ? "," : "", "\"", i, "\":1");
       return chat_with(concat(",\"logit_bias\":{", entries, "}"));
     }},
};

TEST(Limits, HoldExactlyAtTheirBound) {
  const ServedModel model = testing::served_model();
  for (const LimitCase& c : kCases)
    for (const size_t used : {kBound - 1, kBound, kBound + 1}) {
      RequestLimits limits;
      c.set(limits);
      const ParsedRequest parsed = parse_generation_request(Api::chat, c.body(used), model, limits);
      const auto* error = std::get_if<ApiError>(&parsed);
      ASSERT_EQ(error != nullptr, used > kBound)
          << c.name << " " << used << " " << (error != nullptr ? error->message : "");
      if (error == nullptr) continue;
      EXPECT_EQ(error->status, 400);
      EXPECT_NE(error->message.find(c.name), std::string::npos) << error->message;
      EXPECT_NE(error->message.find(concat(kBound)), std::string::npos) << error->message;
    }
}

class LimitsServerTest : public testing::ServerTest {};

TEST_F(LimitsServerTest, ConnectionsOfOneAddress) {
  ServerOptions options;
  options.http.limits.connections_per_address_max = 2;
  start("x", options);
  RawClient one(server_->port());
  RawClient two(server_->port());
  EXPECT_EQ(ask(one, testing::get("/health")).first, 200);
  EXPECT_EQ(ask(two, testing::get("/health")).first, 200);
  RawClient three(server_->port());
  const std::string refused = three.read_all();
  EXPECT_NE(refused.find("at most 2 (--max-connections-per-address)"), std::string::npos)
      << refused;
  one.close();
  int status = 503;
  for (int i = 0; i < 200 && status != 200; ++i) status = ask(testing::get("/health")).first;
  EXPECT_EQ(status, 200);
}

TEST_F(LimitsServerTest, AReaderThatStopsLosesItsRequestAndHoldsUpNobody) {
  ServerOptions options;
  options.http.limits.output_bytes_max = 1024;
  start_script(testing::script_of(std::string(900, 'x')), options, std::chrono::milliseconds(1));
  RawClient stopped(server_->port());
  stopped.receive_at_most(1024);
  // Each event repeats the model's name: much output of few tokens.
  const std::string stream = R"({"messages":[{"role":"user","content":"hi"}],"stream":true,"n":4,)"
                             R"("logprobs":true,"top_logprobs":20})";
  stopped.send(post(testing::kChat, stream));
  const auto other = ask(post(testing::kCompletions, R"({"prompt":"p","max_tokens":20})"));
  EXPECT_EQ(other.first, 200);
  wait_for_log("client gone");
  const std::string load = ask(testing::get("/load")).second;
  EXPECT_EQ(load, R"({"server_load":0})");  // its pages are back: the engine checks at each step
}

}  // namespace
}  // namespace nibble
