// Filters that speak after the model has said all: each answer ends as its own filter says, is
// written to the log and counted once, and then the server has nothing of it any more.
#include <gtest/gtest.h>

#include <deque>

#include "server/testing/test_server.h"

namespace nibble {
namespace {

using testing::kChat;
using testing::soon;

/// Lets prompts pass at once, and answers when it is told to.
class LateFilter final : public OutputFilter {
 public:
  std::string_view name() const override { return "late"; }
  void ask(Question question, Answer answer) override {
    if (question->place == FilterPlace::prompt) return answer(FilterVerdict::pass);
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(answer));
  }
  size_t waiting() const {
    const std::lock_guard lock(mutex_);
    return waiting_.size();
  }
  /// The verdict on the question that came last.
  void tell_last(FilterVerdict verdict) {
    Answer answer;
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.empty()) return;
      answer = std::move(waiting_.back());
      waiting_.pop_back();
    }
    answer(verdict);
  }

 private:
  mutable std::mutex mutex_;
  std::deque<Answer> waiting_;
};

/// An answer by another way than a socket. The server holds it for as long as the request.
class Heard final : public HttpExchange {
 public:
  explicit Heard(std::shared_ptr<std::string> body) : body_(std::move(body)) {}
  void respond(HttpResponse response) override { *body_ = std::move(response.body); }
  void start_stream(HttpResponse) override {}
  void write(std::string) override {}
  void finish_stream() override {}
  void on_gone(std::function<void()>) override {}

 private:
  std::shared_ptr<std::string> body_;
};

class LateVerdict : public testing::ServerTest {
 protected:
  struct Asked {
    std::string id;
    std::weak_ptr<HttpExchange> exchange;
    std::shared_ptr<std::string> body = std::make_shared<std::string>();
    bool forgotten() const { return exchange.expired(); }
  };
  void start_late(const std::string& script) {
    ServerOptions options;
    options.filter.filters = {filter_};
    options.filter.timeout = testing::kPatience;
    options.filter.window_bytes = 0;
    start(script, std::move(options));
  }
  /// Sends a request; returns when the model has said the answer, by the metrics `ended` in all.
  Asked ask_until_said(const std::string& id, int ended) {
    Asked asked{.id = id, .exchange = {}};
    auto exchange = std::make_shared<Heard>(asked.body);
    asked.exchange = exchange;
    server_->submit({.method = "POST",
                     .path = kChat,
                     .headers = {{"content-type", "application/json"}, {"x-request-id", id}},
                     .body = R"({"messages":[{"role":"user","content":"hi"}],)"
                             R"("tools":[{"type":"function","function":{"name":"f"}}]})"},
                    std::move(exchange));
    EXPECT_TRUE(soon([&] {
      return metric("nibble_request_success_total", "finished_reason=\"stop\"") >= ended;
    }));
    return asked;
  }
  /// Tells this verdict until the answer is out and forgotten: a filter is asked piece by piece.
  void expect_forgotten(const Asked& asked, FilterVerdict verdict) {
    EXPECT_TRUE(soon([&] {
      if (!asked.forgotten()) filter_->tell_last(verdict);
      return asked.forgotten();
    })) << asked.id;
  }
  /// The lines of the log about a request. What comes before them on the server's thread, as the
  /// answer does, may be read here after that.
  std::vector<std::string> lines_of(const Asked& asked) {
    std::vector<std::string> lines;
    const std::string all = log();
    for (size_t at = 0, end = 0; (end = all.find('\n', at)) != std::string::npos; at = end + 1)
      if (all.substr(at, end - at).starts_with(asked.id + " "))
        lines.push_back(all.substr(at, end - at));
    return lines;
  }
  void expect_line(const Asked& asked, std::string_view words) {
    const std::vector<std::string> lines = lines_of(asked);
    ASSERT_EQ(lines.size(), 1U) << log();
    EXPECT_NE(lines[0].find(words), std::string::npos) << lines[0];
  }
  double calls() { return metric("nibble_tool_calls_total", "outcome=\"complete\""); }

  std::shared_ptr<LateFilter> filter_ = std::make_shared<LateFilter>();
};

constexpr const char* kCall =
    "</think>\n\nI look.<tool_call>\n<function=f>\n<parameter=a>\nb\n</parameter>\n</function>\n"
    "</tool_call>";

TEST_F(LateVerdict, EndsTheAnswerOnce) {
  start_late(kCall);
  const Asked passed = ask_until_said("passed", 1);
  EXPECT_EQ(*passed.body, "");
  EXPECT_TRUE(lines_of(passed).empty()) << log();
  EXPECT_EQ(calls(), 0.0);
  expect_forgotten(passed, FilterVerdict::pass);
  expect_line(passed, ", tool_calls,");
  EXPECT_NE(passed.body->find(R"("finish_reason":"tool_calls")"), std::string::npos)
      << *passed.body;
  EXPECT_EQ(calls(), 1.0);

  const Asked refused = ask_until_said("refused", 2);
  expect_forgotten(refused, FilterVerdict::hit);
  expect_line(refused, ", content_filter,");
  EXPECT_NE(refused.body->find(R"("finish_reason":"content_filter")"), std::string::npos)
      << *refused.body;
  EXPECT_EQ(lines_of(passed).size(), 1U);
}

/// The verdict on the later of two comes first.
TEST_F(LateVerdict, EndsTheAnswerThatItIsAbout) {
  start_late("</think>\n\nfine");
  const Asked first = ask_until_said("first", 1);
  EXPECT_TRUE(soon([&] { return filter_->waiting() == 1; }));
  const Asked second = ask_until_said("second", 2);
  EXPECT_TRUE(soon([&] { return filter_->waiting() == 2; }));
  filter_->tell_last(FilterVerdict::hit);
  EXPECT_TRUE(soon([&] { return second.forgotten(); }));
  expect_line(second, ", content_filter,");
  EXPECT_FALSE(first.forgotten());
  EXPECT_TRUE(lines_of(first).empty()) << log();
  expect_forgotten(first, FilterVerdict::pass);
  expect_line(first, ", stop,");
  EXPECT_NE(first.body->find(R"("content":"fine")"), std::string::npos) << *first.body;
}

TEST_F(LateVerdict, AnAnswerThatNobodyJudgesIsForgottenToo) {
  start("</think>\n\nfine");
  const Asked asked = ask_until_said("asked", 1);
  EXPECT_TRUE(soon([&] { return asked.forgotten(); }));
  expect_line(asked, ", stop,");
}

}  // namespace
}  // namespace nibble
