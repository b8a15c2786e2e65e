// Keys from a file, over the wire: what a key may do, what its answers tell it, changes while the
// server runs; and what the log says of requests.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/sha256.h"
#include "server/routes/routes.h"
#include "server/testing/test_server.h"

namespace nibble {
namespace {

using testing::get;
using testing::kChat;
using testing::post;
using testing::RawClient;

constexpr const char* kHello = R"({"messages":[{"role":"user","content":"hi"}]})";

std::string with_key(std::string_view key) { return concat("Authorization: Bearer ", key, "\r\n"); }

class TenantsTest : public testing::ServerTest {
 protected:
  TenantsTest() : path_(concat(::testing::TempDir(), "keys_", ::getpid(), ".jsonl")) {}
  ~TenantsTest() override { std::filesystem::remove(path_); }

  void keys(std::initializer_list<std::pair<std::string, std::string>> lines) {
    std::string text;
    for (const auto& [name, more] : lines)
      text += concat(R"({"name":")", name, R"(","sha256":")", sha256_hex(concat("key-of-", name)),
                     "\"", more, "}\n");
    write(text);
  }
  void write(const std::string& text) {
    std::ofstream(path_ + ".new") << text;
    std::filesystem::rename(path_ + ".new", path_);
  }
  ServerOptions with_file() const {
    ServerOptions options;
    options.api_key_file = path_;
    options.key_check = std::chrono::milliseconds(5);
    return options;
  }
  int status_for(std::string_view name, const std::string& body = kHello) {
    return ask(post(kChat, body, with_key(concat("key-of-", name)))).first;
  }
  void wait_for_status(std::string_view name, int status) {
    const auto now = [&] {
      return ask(get("/v1/models", with_key(concat("key-of-", name)))).first;
    };
    EXPECT_TRUE(testing::soon([&] { return now() == status; })) << name;
  }
  std::string path_;
};

TEST_F(TenantsTest, EveryRouteButTheOpenOnesNeedsAKeyOfTheFile) {
  keys({{"alice", ""}});
  start("x", with_file());
  for (const Route& route : server_routes()) {
    const std::string path =
        concat(route.path, route.path.size() > 1 && route.path.ends_with('/') ? "tiny" : "");
    const std::string request = concat(route.method, " ", path,
                                       " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    EXPECT_EQ(ask(request).first == 401, route.access == Access::keyed) << request;
  }
  EXPECT_EQ(status_for("alice"), 200);
  EXPECT_EQ(status_for("bob"), 401);
}

TEST_F(TenantsTest, LimitsRequestsAndTellsOfThem) {
  keys({{"alice", R"(,"requests_per_minute":2,"tokens_per_minute":100000)"}, {"bob", ""}});
  start("x", with_file());
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  EXPECT_EQ(status_for("alice"), 200);
  EXPECT_EQ(header("x-ratelimit-limit-requests"), "2");
  EXPECT_EQ(header("x-ratelimit-remaining-requests"), "1");
  const auto soon = [&](const std::string& seconds) {  // 30 s, less what the machine took since
    const std::chrono::duration<double> since = Clock::now() - begin;
    return !seconds.empty() && std::stod(seconds) <= 30.0 &&
           std::stod(seconds) >= std::floor(30.0 - since.count());
  };
  EXPECT_TRUE(soon(header("x-ratelimit-reset-requests"))) << head_;
  EXPECT_EQ(header("x-ratelimit-limit-tokens"), "100000");
  EXPECT_EQ(status_for("alice"), 200);
  EXPECT_EQ(status_for("alice"), 429);
  EXPECT_TRUE(soon(header("Retry-After"))) << head_;
  EXPECT_EQ(header("x-ratelimit-remaining-requests"), "0");
  EXPECT_EQ(status_for("bob"), 200);
  EXPECT_EQ(header("x-ratelimit-limit-requests"), "");
  EXPECT_EQ(ask(get("/v1/models", with_key("key-of-alice"))).first, 200);  // reads cost nothing
}

TEST_F(TenantsTest, LimitsTokensOfPromptsAndAnswers) {
  keys({{"alice", R"(,"tokens_per_minute":100)"}});
  start("hello there", with_file());
  EXPECT_EQ(status_for("alice"), 200);
  std::string body;
  int status = 200;
  for (int i = 0; i < 1000 && status == 200; ++i)
    std::tie(status, body) = ask(post(kChat, kHello, with_key("key-of-alice")));
  EXPECT_EQ(status, 429);
  EXPECT_NE(body.find("100 tokens per minute"), std::string::npos) << body;
  EXPECT_NE(body.find("rate_limit_exceeded"), std::string::npos) << body;
}

TEST_F(TenantsTest, LimitsRequestsAtOnceAndFreesTheSeatOfOneThatLeft) {
  keys({{"alice", R"(,"max_concurrent":1)"}});
  start_script(testing::script_of(std::string(600, 'x')), with_file(),
               std::chrono::milliseconds(50));
  const std::string stream = R"({"messages":[{"role":"user","content":"hi"}],"stream":true})";
  auto client = std::make_unique<RawClient>(server_->port());
  client->send(post(kChat, stream, with_key("key-of-alice")));
  client->read_until("data: ");
  EXPECT_EQ(status_for("alice"), 429);
  client.reset();
  wait_for_log("client gone");
  EXPECT_EQ(status_for("alice", R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":1})"),
            200);
}

TEST_F(TenantsTest, HoldsKeysToTheirProfiles) {
  keys({{"alice", R"(,"profiles":["instruct-general"])"}});
  start("x", with_file());
  const auto asking = [&](std::string_view model) {
    return status_for("alice", concat(R"({"model":")", model,
                                      R"(","messages":[{"role":"user","content":"hi"}]})"));
  };
  EXPECT_EQ(asking("tiny:instruct-general"), 200);
  EXPECT_EQ(asking("instruct-general"), 200);
  EXPECT_EQ(asking("tiny"), 403);
  EXPECT_EQ(asking("thinking-coding"), 403);
  EXPECT_EQ(status_for("alice"), 403);
  const std::string models = ask(get("/v1/models", with_key("key-of-alice"))).second;
  EXPECT_NE(models.find("\"tiny:instruct-general\""), std::string::npos) << models;
  EXPECT_EQ(models.find("thinking-coding"), std::string::npos) << models;
  EXPECT_EQ(ask(get("/v1/models/thinking-coding", with_key("key-of-alice"))).first, 404);
}

TEST_F(TenantsTest, SharesPrefixesOnlyWhereTheFileSaysSo) {
  keys({{"a", ""}, {"b", ""}, {"c", R"(,"cache":"shared")"}, {"d", R"(,"cache":"shared")"}});
  start("x", with_file());
  const std::string prompt(400, 'p');
  const auto cached = [&](std::string_view name) {
    const auto [status, body] =
        ask(post("/v1/completions", concat(R"({"prompt":")", prompt, R"(","max_tokens":1})"),
                 with_key(concat("key-of-", name))));
    EXPECT_EQ(status, 200) << body;
    const Json answer = parse_json(body, "the answer").value();
    return at(at(at(answer, "usage"), "prompt_tokens_details"), "cached_tokens").as_int();
  };
  EXPECT_EQ(cached("a"), 0);
  EXPECT_GT(cached("a"), 0);
  EXPECT_EQ(cached("b"), 0);
  EXPECT_EQ(cached("c"), 0);
  EXPECT_GT(cached("d"), 0);
}

/// Filters of the server, of a key and of a profile: patterns "server", "key" and "profile".
class FilteredTenantsTest : public TenantsTest {
 protected:
  FilteredTenantsTest() {
    for (const char* word : {"server", "key", "profile"})
      std::ofstream(pattern_file(word)) << word << "-secret\n";
  }
  ~FilteredTenantsTest() override {
    for (const char* word : {"server", "key", "profile"})
      std::filesystem::remove(pattern_file(word));
  }
  std::string pattern_file(std::string_view word) const { return concat(path_, ".", word); }
  std::string of_key() const {
    return concat(R"(,"filters":["regex:)", pattern_file("key"), "\"]");
  }
  ServedModel model() const override {
    ServedModel model = testing::served_model();
    model.profiles.add({.name = "guarded", .filters = {concat("regex:", pattern_file("profile"))}});
    return model;
  }
  ServerOptions with_filters() const {
    ServerOptions options = with_file();
    options.filter.store = std::make_shared<FilterStore>(FilterReport());
    options.filter.filters =
        options.filter.store->get_all({concat("regex:", pattern_file("server"))}).value();
    return options;
  }
  int says(std::string_view name, std::string_view word, std::string_view of_model = "tiny") {
    return status_for(name, concat(R"({"model":")", of_model,
                                   R"(","max_tokens":4,"messages":[{"role":"user","content":"a )",
                                   word, R"(-secret"}]})"));
  }
};

TEST_F(FilteredTenantsTest, AKeysAndAProfilesFiltersJudgeBesideTheServers) {
  keys({{"alice", of_key()}, {"bob", ""}});
  start("</think>\n\nfine", with_filters());
  for (const char* word : {"server", "key", "profile"})
    for (const char* name : {"alice", "bob"})
      for (const char* profile : {"tiny", "tiny:guarded"}) {
        const bool hit = word == std::string("server") ||
                         (word == std::string("key") && name == std::string("alice")) ||
                         (word == std::string("profile") && profile == std::string("tiny:guarded"));
        EXPECT_EQ(says(name, word, profile), hit ? 400 : 200) << name << word << profile;
      }
  const std::string metrics = ask(get("/metrics", with_key("key-of-bob"))).second;
  const std::string row =
      concat("nibble_filter_hits_total{filter=\"regex:", pattern_file("profile"), "\"} 2\n");
  EXPECT_NE(metrics.find(row), std::string::npos) << metrics.substr(metrics.find("nibble_filter"));
}

TEST_F(FilteredTenantsTest, AnswersAreJudgedByTheKeysFiltersToo) {
  keys({{"alice", of_key()}, {"bob", ""}});
  start("</think>\n\nit is the key-secret, alas", with_filters());
  const auto answer = [&](std::string_view name) {
    return ask(post(kChat, kHello, with_key(concat("key-of-", name)))).second;
  };
  EXPECT_NE(answer("alice").find(R"("finish_reason":"content_filter")"), std::string::npos);
  EXPECT_EQ(answer("alice").find("key-secret"), std::string::npos);
  EXPECT_NE(answer("bob").find("key-secret"), std::string::npos);
}

TEST_F(FilteredTenantsTest, FiltersFollowTheFile) {
  keys({{"alice", ""}});
  start("</think>\n\nfine", with_file());
  EXPECT_EQ(says("alice", "key"), 200);
  keys({{"alice", of_key()}, {"bob", ""}});
  wait_for_status("bob", 200);
  EXPECT_EQ(says("alice", "key"), 400);
  keys({{"alice", R"(,"filters":["regex:/nothing/here"])"}});
  wait_for_log("the keys in use stay");
  EXPECT_EQ(says("alice", "key"), 400);
  keys({{"alice", ""}, {"carol", ""}});
  wait_for_status("carol", 200);
  EXPECT_EQ(says("alice", "key"), 200);
}

TEST_F(TenantsTest, FollowsTheFileAndKeepsTheOldKeysWhenItBreaks) {
  keys({{"alice", ""}});
  start("x", with_file());
  EXPECT_EQ(status_for("bob"), 401);
  keys({{"alice", ""}, {"bob", ""}});
  wait_for_status("bob", 200);
  write("{\"name\":");
  wait_for_log("the keys in use stay");
  EXPECT_EQ(status_for("bob"), 200);
  std::filesystem::remove(path_);
  wait_for_log("cannot open");
  EXPECT_EQ(status_for("bob"), 200);
  keys({{"bob", ""}});
  wait_for_status("alice", 401);
  EXPECT_EQ(status_for("bob"), 200);
  size_t lines = 0;
  for (size_t at = 0; (at = log().find("in use stay", at)) != std::string::npos; ++at) ++lines;
  EXPECT_EQ(lines, 2U) << log();
}

TEST_F(TenantsTest, RefusesToStartWithoutGoodKeys) {
  write("{}\n");
  ServerOptions options = with_file();
  options.http.port = 0;
  const auto server =
      Server::start(std::make_unique<testing::ScriptedBackend>(std::vector<int32_t>{1}),
                    testing::model_config(), {}, testing::served_model(), options);
  ASSERT_FALSE(server.ok());
  EXPECT_NE(server.error().message.find("line 1: no \"name\""), std::string::npos);
}

TEST_F(TenantsTest, WritesOneLinePerRequest) {
  keys({{"alice", ""}});
  ServerOptions options = with_file();
  options.log_format = LogFormat::json;
  start("I think.\n</think>\n\nHello!", options);
  const std::string trace = "4bf92f3577b34da6a3ce929d0e0e4736";
  const std::string headers =
      concat(with_key("key-of-alice"), "x-request-id: one\r\ntraceparent: 00-", trace,
             "-00f067aa0ba902b7-01\r\n");
  EXPECT_EQ(ask(post(kChat, kHello, headers)).first, 200);
  EXPECT_EQ(header("x-request-id"), "one");
  wait_for_log("\n");
  const Json line = parse_json(log(), "the line").value();
  EXPECT_EQ(at(line, "request_id").as_string(), "one");
  EXPECT_EQ(at(line, "trace_id").as_string(), trace);
  EXPECT_EQ(at(line, "key").as_string(), "alice");
  EXPECT_EQ(at(line, "path").as_string(), kChat);
  EXPECT_EQ(at(line, "model").as_string(), "tiny");
  EXPECT_EQ(at(line, "status").as_int(), 200);
  EXPECT_EQ(at(line, "finish_reason").as_string(), "stop");
  EXPECT_EQ(at(line, "completion_tokens").as_int(), 19);
  EXPECT_GE(at(line, "first_token_ms").as_double(), 0.0);
  EXPECT_GE(at(line, "total_ms").as_double(), at(line, "first_token_ms").as_double());
  EXPECT_EQ(line.find("request"), nullptr);
  EXPECT_EQ(log().find("hi"), std::string::npos);
  EXPECT_EQ(status_for("bob"), 401);
  wait_for_log("\"status\":401");
  EXPECT_EQ(ask(get("/health")).first, 200);
  EXPECT_EQ(log().find("/health"), std::string::npos);
}

TEST_F(TenantsTest, ARequestsNameHasAtMost128Letters) {
  keys({{"alice", ""}});
  start("I think.\n</think>\n\nHello!", with_file());
  for (const size_t letters : {128U, 129U}) {
    const std::string name(letters, 'n');
    EXPECT_EQ(
        ask(post(kChat, kHello, concat(with_key("key-of-alice"), "x-request-id: ", name, "\r\n")))
            .first,
        200);
    EXPECT_EQ(header("x-request-id") == name, letters == 128);
  }
}

TEST_F(TenantsTest, WritesPromptsOnlyWhenAsked) {
  ServerOptions options;
  options.log_prompts = PromptLog::yes;
  start("x", options);
  chat("");
  wait_for_log(R"(\"content\":\"hi\")");
}

}  // namespace
}  // namespace nibble
