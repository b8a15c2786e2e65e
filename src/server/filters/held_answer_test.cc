// Answers past filters, end to end: what is held, hits across borders, slow and dead filters.
#include "server/filters/held_answer.h"

#include <gtest/gtest.h>

#include <random>

#include "server/testing/test_server.h"

namespace nibble {
namespace {

using testing::get;
using testing::kChat;
using testing::kCompletions;
using testing::post;
using testing::RawClient;

/// Judges by a word, at once or never.
class WordFilter final : public OutputFilter {
 public:
  enum class Speed : uint8_t { at_once, never };
  explicit WordFilter(std::string word, Speed speed = Speed::at_once)
      : word_(std::move(word)), speed_(speed) {}
  std::string_view name() const override { return "word"; }
  void ask(Question question, Answer answer) override {
    {
      const std::lock_guard lock(mutex_);
      ++asked_;
      longest_ = std::max(longest_, question->text.size());
      last_ = question->text;
    }
    if (speed_ == Speed::never) return;
    const bool hit = question->text.find(word_) != std::string::npos;
    answer(hit ? FilterVerdict::hit : FilterVerdict::pass);
  }
  int asked() const {
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  std::string last() const {
    const std::lock_guard lock(mutex_);
    return last_;
  }
  size_t longest() const {
    const std::lock_guard lock(mutex_);
    return longest_;
  }

 private:
  std::string word_;
  Speed speed_;
  mutable std::mutex mutex_;
  int asked_ = 0;
  size_t longest_ = 0;
  std::string last_;
};

/// Runs what is posted when told to, so that questions stay open as long as a test wants.
class Loop {
 public:
  FilterPanel::Server server() {
    return {.post = [this](std::function<void()> task) { tasks_.push_back(std::move(task)); },
            .post_after = [](std::chrono::milliseconds, const std::function<void()>&) {}};
  }
  void run() {
    while (!tasks_.empty()) {
      const auto task = std::move(tasks_.front());
      tasks_.pop_front();
      task();
    }
  }

 private:
  std::deque<std::function<void()>> tasks_;
};

constexpr size_t kWindow = 8;

struct Shown {
  std::string text;
  FilterVerdict verdict = FilterVerdict::pass;
};

/// `text` in random pieces past a filter of `word`, verdicts coming now and then.
Shown through(const std::string& text, const std::string& word, std::mt19937& random) {
  Loop loop;
  FilterOptions options;
  options.filters = {std::make_shared<WordFilter>(word)};
  options.window_bytes = kWindow;
  FilterPanel panel(options, loop.server());
  const auto held = std::make_shared<HeldAnswer>(panel, options.filters, [] {});
  Shown shown;
  const auto collect = [&] {
    for (const OutputEvent& event : held->take()) shown.text += event.text;
  };
  for (size_t at = 0; at < text.size();) {
    const size_t size = std::min<size_t>(1 + random() % 5, text.size() - at);
    held->add({{.kind = OutputEvent::Kind::content, .text = text.substr(at, size)}});
    at += size;
    if (random() % 2 == 0) loop.run();
    collect();
    EXPECT_EQ(shown.text, text.substr(0, shown.text.size()));
  }
  held->finish();
  loop.run();
  collect();
  EXPECT_TRUE(held->settled());
  shown.verdict = held->verdict();
  return shown;
}

TEST(HeldAnswer, NothingOfAHitIsShownHoweverTheTextIsCut) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    const std::string before(random() % 40, 'a');
    const std::string after(random() % 20, 'b');
    const Shown hit = through(before + "FORBID" + after, "FORBID", random);
    EXPECT_EQ(hit.verdict, FilterVerdict::hit);
    ASSERT_EQ(hit.text.find('F'), std::string::npos) << hit.text;
    const Shown clean = through(before + "FORBI" + after, "FORBID", random);
    EXPECT_EQ(clean.verdict, FilterVerdict::pass);
    ASSERT_EQ(clean.text, before + "FORBI" + after);
  }
}

/// 100 times one character, judged one by one after a window of so many bytes.
void expect_window_held(size_t window, const std::string& character) {
  Loop loop;
  FilterOptions options;
  const auto filter = std::make_shared<WordFilter>("x");
  options.filters = {filter};
  options.window_bytes = window;
  FilterPanel panel(options, loop.server());
  const auto held = std::make_shared<HeldAnswer>(panel, options.filters, [] {});
  size_t shown = 0;
  for (int i = 1; i <= 100; ++i) {
    held->add({{.kind = OutputEvent::Kind::content, .text = character}});
    loop.run();
    for (const OutputEvent& event : held->take()) {
      shown += event.text.size();
      EXPECT_EQ(event.text.size() % character.size(), 0U) << "a part of a character";
    }
    EXPECT_LT(held->held_bytes(), window + character.size());
  }
  EXPECT_EQ(shown + held->held_bytes(), 100 * character.size());
  EXPECT_LE(filter->longest(), 2 * (window + character.size()));
  held->finish();
  loop.run();
  for (const OutputEvent& event : held->take()) shown += event.text.size();
  EXPECT_EQ(shown, 100 * character.size());
}

TEST(HeldAnswer, HoldsBackTheWindowAndNoMore) {
  for (const size_t window : {7U, 8U, 9U, 10U})
    for (const std::string character : {"e", "é", "€", "😀"}) {
      SCOPED_TRACE(concat(window, " bytes of ", character));
      expect_window_held(window, character);
    }
}

/// Patterns may look at what is before a word, so whole words of what was shown are asked again.
TEST(HeldAnswer, AsksWithWholeWordsOfWhatWasShown) {
  Loop loop;
  FilterOptions options;
  const auto filter = std::make_shared<WordFilter>("x");
  options.filters = {filter};
  options.window_bytes = 10;
  FilterPanel panel(options, loop.server());
  const auto held = std::make_shared<HeldAnswer>(panel, options.filters, [] {});
  std::string shown;
  for (const char c : std::string("one two three four five six seven eight")) {
    held->add({{.kind = OutputEvent::Kind::content, .text = std::string(1, c)}});
    loop.run();
    for (const OutputEvent& event : held->take()) shown += event.text;
  }
  EXPECT_EQ(shown, "one two three fo");
  EXPECT_EQ(filter->last(), " three four five six");
}

TEST(HeldAnswer, EventsKeepTheirOrderAndCallsAreJudged) {
  Loop loop;
  FilterOptions options;
  options.filters = {std::make_shared<WordFilter>("zzz")};
  FilterPanel panel(options, loop.server());
  const auto held = std::make_shared<HeldAnswer>(panel, options.filters, [] {});
  using Kind = OutputEvent::Kind;
  const std::vector<OutputEvent> events = {{Kind::reasoning, "zzz is not judged", 0},
                                           {Kind::content, "text", 0},
                                           {Kind::tool_begin, "f", 0},
                                           {Kind::tool_arguments, "{\"a\": 1}", 0},
                                           {Kind::tool_end, "", 0},
                                           {Kind::tool_begin, "g", 1},
                                           {Kind::tool_arguments, "{}", 1},
                                           {Kind::tool_end, "", 1}};
  for (const OutputEvent& event : events) held->add({event});
  held->finish();
  loop.run();
  EXPECT_EQ(held->take(), events);
  EXPECT_TRUE(held->settled());

  // A whole call waits for nothing that may follow it.
  const auto called = std::make_shared<HeldAnswer>(panel, options.filters, [] {});
  for (size_t i = 2; i < 5; ++i) called->add({events[i]});
  loop.run();
  EXPECT_EQ(called->take(), (std::vector<OutputEvent>(events.begin() + 2, events.begin() + 5)));

  const auto bad = std::make_shared<HeldAnswer>(panel, options.filters, [] {});
  bad->add({events[1], events[2], {Kind::tool_arguments, "{\"a\": \"zzz\"}", 0}, events[4]});
  loop.run();
  EXPECT_EQ(bad->take(), std::vector<OutputEvent>{events[1]});
  EXPECT_EQ(bad->verdict(), FilterVerdict::hit);
}

class FilteredServer : public testing::ServerTest {
 protected:
  void start_filtered(const std::string& script, FilterOptions filter) {
    ServerOptions options;
    options.filter = std::move(filter);
    start(script, options);
  }
  static FilterOptions word(const std::string& text,
                            WordFilter::Speed speed = WordFilter::Speed::at_once) {
    FilterOptions options;
    options.filters = {std::make_shared<WordFilter>(text, speed)};
    options.window_bytes = 16;
    options.timeout = std::chrono::milliseconds(150);
    return options;
  }
  static std::string message(const Json& answer, const char* member, size_t index = 0) {
    const Json* text = at(choice(answer, index), "message").find(member);
    return text != nullptr && text->is_string() ? text->as_string() : "";
  }
  static constexpr const char* kStream =
      R"({"stream":true,"logprobs":true,"messages":[{"role":"user","content":"hi"}]})";
};

TEST_F(FilteredServer, CleanAnswersAreWhole) {
  start_filtered("secret why</think>\n\nAll is well, and it goes on for a while.", word("secret"));
  const Json answer = chat(R"(,"n":3,"logprobs":true)");
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(message(answer, "content", i), "All is well, and it goes on for a while.");
    EXPECT_EQ(message(answer, "reasoning", i), "secret why");  // not judged unless asked
    EXPECT_FALSE(at(choice(answer, i), "logprobs").is_null());
  }
  std::string text;
  for (const std::string& event : events(post(kChat, kStream))) {
    if (event == "[DONE]") continue;
    const Json chunk = parse_json(event, "chunk").value();
    if (const Json* content = at(choice(chunk), "delta").find("content"))
      text += content->as_string();
  }
  EXPECT_EQ(text, "All is well, and it goes on for a while.");
}

TEST_F(FilteredServer, AHitEndsTheChoice) {
  start_filtered("</think>\n\nThis is quite long, and then the secret comes out, alas.",
                 word("secret"));
  const Json answer = chat(R"(,"n":2,"logprobs":true)");
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(at(choice(answer, i), "finish_reason").as_string(), "content_filter");
    EXPECT_EQ(answer.dump().find("secr"), std::string::npos);
    EXPECT_TRUE(at(choice(answer, i), "logprobs").is_null());
  }
  const std::string streamed = ask(post(kChat, kStream)).second;
  EXPECT_NE(streamed.find(R"("finish_reason":"content_filter")"), std::string::npos);
  EXPECT_NE(streamed.find("data: [DONE]"), std::string::npos);
  EXPECT_EQ(streamed.find("top_logprobs"), std::string::npos);  // nor its tokens
  const std::string metrics = ask(get("/metrics")).second;
  EXPECT_NE(metrics.find("nibble_filter_hits_total{filter=\"word\"} 3"), std::string::npos)
      << metrics.substr(metrics.find("nibble_filter"));
  // The other APIs say it in their words.
  EXPECT_NE(
      ask(post("/v1/messages", R"({"max_tokens":99,"messages":[{"role":"user","content":"h"}]})"))
          .second.find(R"("stop_reason":"refusal")"),
      std::string::npos);
  EXPECT_NE(
      ask(post("/v1/responses", R"({"input":"hi"})")).second.find(R"("reason":"content_filter")"),
      std::string::npos);
}

TEST_F(FilteredServer, AHitLeavesTheLogProbabilitiesOfAnEchoedPrompt) {
  start_filtered("Quite long, and then the secret comes out, alas.", word("secret"));
  const auto [status, body] =
      ask(post(testing::kCompletions, R"({"prompt":"hi","echo":true,"logprobs":0})"));
  ASSERT_EQ(status, 200) << body;
  const Json answer = parse_json(body, "the answer").value();
  EXPECT_EQ(at(choice(answer), "finish_reason").as_string(), "content_filter");
  EXPECT_EQ(at(at(choice(answer), "logprobs"), "tokens").as_array().size(), 2U);
}

TEST_F(FilteredServer, ThinkingAndCallsAreJudgedWhereWanted) {
  FilterOptions options = word("secret");
  options.reasoning = FilterReasoning::yes;
  start_filtered("the secret</think>\n\nfine", options);
  EXPECT_EQ(at(choice(chat("")), "finish_reason").as_string(), "content_filter");
}

TEST_F(FilteredServer, ArgumentsOfCallsAreJudged) {
  start_filtered(
      "</think>\n\n<tool_call>\n<function=f>\n<parameter=a>\nthe "
      "secret\n</parameter>\n</function>\n"
      "</tool_call>",
      word("secret"));
  const Json answer = chat(R"(,"tools":[{"type":"function","function":{"name":"f"}}])");
  EXPECT_EQ(at(choice(answer), "finish_reason").as_string(), "content_filter");
  EXPECT_EQ(answer.dump().find("secret"), std::string::npos);
}

TEST_F(FilteredServer, PromptsAreJudged) {
  start_filtered("</think>\n\nfine", word("prompt-secret"));
  const auto [status, body] = ask(post(kCompletions, R"({"prompt":"a prompt-secret here"})"));
  EXPECT_EQ(status, 400);
  EXPECT_NE(body.find("content_filter"), std::string::npos);
  EXPECT_EQ(ask(post(kCompletions, R"({"prompt":"a prompt"})")).first, 200);
}

TEST_F(FilteredServer, ADeadFilterClosesOrOpens) {
  start_filtered("</think>\n\nfine", word("x", WordFilter::Speed::never));
  const auto [status, body] = ask(post(kCompletions, R"({"prompt":"a"})"));
  EXPECT_EQ(status, 503);
  EXPECT_NE(body.find("filter_failed"), std::string::npos);
}

TEST_F(FilteredServer, ADeadFilterMayBeLeftOut) {
  FilterOptions options = word("x", WordFilter::Speed::never);
  options.fail = FilterFail::open;
  start_filtered("</think>\n\nfine", options);
  EXPECT_EQ(message(chat(""), "content"), "fine");
  const std::string metrics = ask(get("/metrics")).second;
  EXPECT_EQ(metrics.find("nibble_filter_failures_total{filter=\"word\"} 0"), std::string::npos);
  EXPECT_NE(metrics.find("nibble_filter_failures_total{filter=\"word\"} "), std::string::npos);
}

}  // namespace
}  // namespace nibble
