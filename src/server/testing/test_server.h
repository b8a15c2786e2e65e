// For tests: a server over a raw socket, with a model that says a given script.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/server.h"
#include "server/testing/test_client.h"
#include "server/testing/test_model.h"

namespace nibble::testing {

inline constexpr const char* kChat = "/v1/chat/completions";
inline constexpr const char* kCompletions = "/v1/completions";

class ServerTest : public ::testing::Test {
 protected:
  void start(const std::string& script, ServerOptions options = {}) {
    start_script(script_of(script), std::move(options));
  }
  void start_script(std::vector<int32_t> script, ServerOptions options = {},
                    std::chrono::milliseconds pass_time = {}) {
    options.http.port = 0;
    options.request_log = options.log = [this](std::string_view line) {
      std::lock_guard lock(mutex_);
      log_ += concat(line, "\n");
    };
    auto server = Server::start(backend(std::move(script), pass_time), model_config(), settings(),
                                model(), std::move(options));
    ASSERT_TRUE(server.ok()) << server.error().message;
    server_ = std::move(server).value();
    thread_ = std::thread([this] { server_->run(); });
  }
  /// The backend that computes.
  virtual std::unique_ptr<Backend> backend(std::vector<int32_t> script,
                                           std::chrono::milliseconds pass_time) const {
    return std::make_unique<ScriptedBackend>(std::move(script), pass_time);
  }
  virtual EngineSettings settings() const {
    return {.pools = {.pages = 64, .state_slots = 4, .rows_max = 512},
            .sequences_max = 4,
            .context_max = 1024,
            .waiting_max = 8,
            .integrity = IntegrityChecks::every_step};
  }
  /// The model that is served.
  virtual ServedModel model() const { return served_model(); }
  void TearDown() override {
    if (!server_) return;
    server_->terminate();
    server_->terminate();
    thread_.join();
    server_.reset();  // its threads log until then
  }
  std::string log() {
    std::lock_guard lock(mutex_);
    return log_;
  }
  void wait_for_log(std::string_view text) {
    EXPECT_TRUE(soon([&] { return log().find(text) != std::string::npos; })) << log();
  }

  /// Status and body of one request on its own connection.
  std::pair<int, std::string> ask(const std::string& request) {
    RawClient client(server_->port());
    return ask(client, request);
  }
  std::pair<int, std::string> ask(RawClient& client, const std::string& request) {
    client.send(request);
    std::string answer = client.read_until("\r\n\r\n");
    const size_t body = answer.find("\r\n\r\n");
    head_ = answer.substr(0, body);
    if (body == std::string::npos) return {0, answer};
    const size_t length = answer.find("Content-Length: ");
    if (length == std::string::npos || length > body) {
      if (answer.find("0\r\n\r\n", body) == std::string::npos)
        answer += client.read_until("0\r\n\r\n");
    } else {
      const size_t size = std::stoul(answer.substr(length + 16));
      if (answer.size() < body + 4 + size)
        answer += client.read_bytes(body + 4 + size - answer.size());
    }
    return {std::stoi(answer.substr(9, 3)), answer.substr(body + 4)};
  }
  /// A row of the metrics, by its name and its labels besides the model's; 0 where there is none.
  double metric(std::string_view name, std::string_view labels = "") {
    const std::string row =
        concat("\n", name, "{model_name=\"tiny\"", labels.empty() ? "" : ",", labels, "} ");
    const std::string text = ask(get("/metrics")).second;
    const size_t at = text.find(row);
    return at == std::string::npos ? 0.0 : std::stod(text.substr(at + row.size()));
  }
  /// Waits until so many sequences have ended; how many of them were cancelled.
  int cancelled_of(int ends) {
    const auto ended = [&](std::string_view how) {
      return static_cast<int>(
          metric("nibble_request_success_total", concat("finished_reason=\"", how, "\"")));
    };
    EXPECT_TRUE(soon([&] { return ended("abort") + ended("length") >= ends; }));
    EXPECT_EQ(ended("abort") + ended("length"), ends);
    return ended("abort");
  }
  Json chat(const std::string& fields) {
    const auto [status, body] =
        ask(post(kChat, concat(R"({"messages":[{"role":"user","content":"hi"}])", fields, "}")));
    EXPECT_EQ(status, 200) << body;
    return parse_json(body, "the answer").value();
  }
  /// The data of every event of a stream.
  std::vector<std::string> events(const std::string& request) {
    std::string body = ask(request).second;
    std::vector<std::string> found;
    for (size_t at = body.find("data: "); at != std::string::npos; at = body.find("data: ", at)) {
      const size_t end = body.find("\n\n", at);
      found.push_back(body.substr(at + 6, end - at - 6));
      at = end;
    }
    return found;
  }
  static const Json& at(const Json& json, std::string_view key) {
    const Json* found = json.find(key);
    EXPECT_NE(found, nullptr) << key << " in " << json.dump();
    static const Json none;
    return found != nullptr ? *found : none;
  }
  static const Json& choice(const Json& answer, size_t index = 0) {
    return at(answer, "choices").as_array().at(index);
  }

  /// A header of the last answer.
  std::string header(std::string_view name) const {
    const size_t at = head_.find(concat("\r\n", name, ": "));
    if (at == std::string::npos) return "";
    const size_t begin = at + name.size() + 4;
    return head_.substr(begin, head_.find("\r\n", begin) - begin);
  }

  std::unique_ptr<Server> server_;
  std::thread thread_;
  std::mutex mutex_;
  std::string log_;
  std::string head_;
};

}  // namespace nibble::testing
