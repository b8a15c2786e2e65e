// A long text is asked about in pieces of whole characters, each with what was shown before it.
#include <gtest/gtest.h>

#include <deque>

#include "server/filters/held_answer.h"

namespace nibble {
namespace {

constexpr size_t kPieceMost = 64 * 1024;
constexpr size_t kWindow = 16;

/// Lets everything pass and remembers it.
class Reader final : public OutputFilter {
 public:
  std::string_view name() const override { return "reader"; }
  void ask(Question question, Answer answer) override {
    read.push_back(question->text);
    answer(FilterVerdict::pass);
  }
  std::vector<std::string> read;
};

/// The questions about so many times a character that comes in one event.
std::vector<std::string> questions_about(const std::string& character, size_t count) {
  std::deque<std::function<void()>> tasks;
  const auto reader = std::make_shared<Reader>();
  FilterOptions options;
  options.filters = {reader};
  options.window_bytes = kWindow;
  FilterPanel panel(options,
                    {.post = [&](std::function<void()> task) { tasks.push_back(std::move(task)); },
                     .post_after = [](std::chrono::milliseconds, const std::function<void()>&) {}});
  const auto held = std::make_shared<HeldAnswer>(panel, options.filters, [] {});
  std::string text;
  for (size_t i = 0; i < count; ++i) text += character;
  held->add({{.kind = OutputEvent::Kind::content, .text = text}});
  held->finish();
  std::string shown;
  for (; !tasks.empty(); tasks.pop_front()) {
    tasks.front()();
    for (const OutputEvent& event : held->take()) shown += event.text;
  }
  EXPECT_TRUE(held->settled());
  EXPECT_EQ(shown, text);
  return reader->read;
}

TEST(LongText, IsAskedAboutInPieces) {
  for (const std::string character : {"e", "é", "€", "😀"}) {
    SCOPED_TRACE(character);
    const size_t in_piece = kPieceMost / character.size();
    EXPECT_EQ(questions_about(character, in_piece).size(), 1U);
    EXPECT_EQ(questions_about(character, in_piece + 1).size(), 2U);
    const auto questions = questions_about(character, 3 * in_piece);
    EXPECT_GE(questions.size(), 3U);
    EXPECT_LE(questions.size(), 4U);
    for (const std::string& question : questions) {
      EXPECT_EQ(question.size() % character.size(), 0U);
      EXPECT_LE(question.size(), kPieceMost + 2 * (kWindow + character.size()));
    }
    EXPECT_EQ(questions[0].size(), in_piece * character.size());
    EXPECT_GE(questions[1].size(), in_piece * character.size());
  }
}

}  // namespace
}  // namespace nibble
