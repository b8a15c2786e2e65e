// A panel whose time stands still: the time of a question, several filters as one, counters,
// limits.
#include <gtest/gtest.h>

#include <deque>
#include <optional>

#include "base/concat.h"
#include "server/filters/filter_panel.h"

namespace nibble {
namespace {

/// Keeps what it has to answer.
class PatientFilter final : public OutputFilter {
 public:
  explicit PatientFilter(std::string name) : name_(std::move(name)) {}
  std::string_view name() const override { return name_; }
  void ask(Question, Answer answer) override { asked.push_back(std::move(answer)); }
  std::vector<Answer> asked;

 private:
  std::string name_;
};

/// A panel whose time and whose server stand still but for what a test does.
class StillPanel : public testing::Test {
 protected:
  FilterPanel& make(std::chrono::milliseconds timeout, FilterFail fail = FilterFail::closed) {
    FilterOptions options;
    options.timeout = timeout;
    options.fail = fail;
    panel_.emplace(std::move(options),
                   FilterPanel::Server{
                       .post = [this](std::function<void()> task) { tasks_.push_back(task); },
                       .post_after =
                           [this](std::chrono::milliseconds delay, std::function<void()> look) {
                             every_ = delay;
                             looks_.push_back(std::move(look));
                           }});
    return *panel_;
  }
  /// The number of the question, of which `verdicts_` tells.
  size_t judge(const FilterSet& filters) {
    verdicts_.emplace_back();
    panel_->judge(filters, {FilterPlace::content, "x"},
                  [this, at = verdicts_.size() - 1](FilterVerdict verdict) {
                    EXPECT_FALSE(verdicts_[at].has_value()) << "a second verdict";
                    verdicts_[at] = verdict;
                  });
    return verdicts_.size() - 1;
  }
  void run_tasks() {
    while (!tasks_.empty()) {
      const auto task = std::move(tasks_.front());
      tasks_.pop_front();
      task();
    }
  }
  /// False if no look is due.
  bool look() {
    if (looks_.empty()) return false;
    const auto due = std::move(looks_.front());
    looks_.pop_front();
    due();
    return true;
  }
  void answer(PatientFilter& filter, size_t which, FilterVerdict verdict) {
    filter.asked[which](verdict);
    run_tasks();
  }
  /// The row of a counter.
  bool counted(std::string_view name, std::string_view filter, int64_t count) const {
    const std::string row =
        concat("nibble_filter_", name, "_total{filter=\"", filter, "\"} ", count, "\n");
    return panel_->metrics_text().find(row) != std::string::npos;
  }

  using Verdict = std::optional<FilterVerdict>;
  std::deque<std::function<void()>> tasks_, looks_;
  std::chrono::milliseconds every_{0};
  std::vector<Verdict> verdicts_;
  std::optional<FilterPanel> panel_;
};

/// Eight looks in the time of a question, and no more often than every 5 ms nor less often than
/// every 250 ms; the first may come at once and does not count.
TEST_F(StillPanel, AQuestionHasItsTimeInLooks) {
  struct Case {
    int timeout, every, looks;
  };
  for (const Case& c :
       {Case{80, 10, 9}, Case{8, 5, 2}, Case{2000, 250, 9}, Case{10'000, 250, 41}}) {
    make(std::chrono::milliseconds(c.timeout));
    const size_t asked = judge({std::make_shared<PatientFilter>("silent")});
    EXPECT_EQ(every_.count(), c.every) << c.timeout;
    for (int i = 1; i < c.looks; ++i) EXPECT_TRUE(look());
    EXPECT_EQ(verdicts_[asked], Verdict());
    EXPECT_TRUE(look());
    EXPECT_EQ(verdicts_[asked], FilterVerdict::failed) << c.timeout;
    EXPECT_FALSE(look());  // nobody waits
  }
}

TEST_F(StillPanel, LaterQuestionsHaveTheirOwnTime) {
  make(std::chrono::milliseconds(80));
  const FilterSet silent = {std::make_shared<PatientFilter>("silent")};
  const size_t first = judge(silent);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(look());
  const size_t second = judge(silent);
  for (int i = 3; i < 9; ++i) EXPECT_TRUE(look());
  EXPECT_EQ(verdicts_[first], FilterVerdict::failed);
  EXPECT_EQ(verdicts_[second], Verdict());
  for (int i = 9; i < 12; ++i) EXPECT_TRUE(look());
  EXPECT_EQ(verdicts_[second], FilterVerdict::failed);
  EXPECT_TRUE(counted("failures", "silent", 2));
}

/// The first hit decides; all must pass for a pass. What a filter says after that, or a second
/// time, is not counted.
TEST_F(StillPanel, SeveralFiltersAreAskedAsOne) {
  make(std::chrono::milliseconds(80));
  const auto a = std::make_shared<PatientFilter>("a");
  const auto b = std::make_shared<PatientFilter>("b");
  const size_t hit = judge({a, b});
  answer(*b, 0, FilterVerdict::hit);
  EXPECT_EQ(verdicts_[hit], FilterVerdict::hit);
  answer(*a, 0, FilterVerdict::hit);
  EXPECT_TRUE(counted("hits", "a", 0));
  EXPECT_TRUE(counted("hits", "b", 1));
  const size_t pass = judge({a, b});
  answer(*a, 1, FilterVerdict::pass);
  answer(*a, 1, FilterVerdict::pass);
  EXPECT_EQ(verdicts_[pass], Verdict());
  answer(*b, 1, FilterVerdict::pass);
  EXPECT_EQ(verdicts_[pass], FilterVerdict::pass);
  const size_t failed = judge({a, b});
  answer(*a, 2, FilterVerdict::failed);
  EXPECT_EQ(verdicts_[failed], FilterVerdict::failed);
  EXPECT_TRUE(counted("failures", "a", 1));
  EXPECT_TRUE(counted("failures", "b", 0));
  EXPECT_TRUE(counted("questions", "b", 3));
}

TEST_F(StillPanel, AFailureThatIsOpenPassesAndIsCounted) {
  make(std::chrono::milliseconds(80), FilterFail::open);
  const auto a = std::make_shared<PatientFilter>("a");
  const auto b = std::make_shared<PatientFilter>("b");
  const size_t asked = judge({a, b});
  answer(*a, 0, FilterVerdict::failed);
  EXPECT_EQ(verdicts_[asked], Verdict());
  answer(*b, 0, FilterVerdict::pass);
  EXPECT_EQ(verdicts_[asked], FilterVerdict::pass);
  EXPECT_TRUE(counted("failures", "a", 1));
}

/// It keeps 16,384 questions; those that are answered make room.
TEST_F(StillPanel, MoreQuestionsThanItKeepsFailAtOnce) {
  constexpr size_t kMost = 16'384;
  for (const FilterFail fail : {FilterFail::closed, FilterFail::open}) {
    make(std::chrono::milliseconds(80), fail);
    const auto filter = std::make_shared<PatientFilter>("a");
    for (size_t i = 0; i < kMost; ++i) judge({filter});
    EXPECT_EQ(filter->asked.size(), kMost);
    const size_t one_more = judge({filter});
    run_tasks();
    EXPECT_EQ(filter->asked.size(), kMost);
    EXPECT_EQ(verdicts_[one_more],
              fail == FilterFail::open ? FilterVerdict::pass : FilterVerdict::failed);
    const size_t unjudged = judge({});
    run_tasks();
    EXPECT_EQ(verdicts_[unjudged], FilterVerdict::pass);
    answer(*filter, 0, FilterVerdict::pass);
    judge({filter});
    EXPECT_EQ(filter->asked.size(), kMost + 1);
  }
}

/// Each of the first 256 names has its counters; the rest has one together.
TEST_F(StillPanel, NamesBeyondTheMostAreCountedTogether) {
  make(std::chrono::milliseconds(80));
  for (int i = 0; i < 300; ++i) judge({std::make_shared<PatientFilter>(concat("f", i))});
  judge({std::make_shared<PatientFilter>("f255")});
  EXPECT_TRUE(counted("questions", "f0", 1));
  EXPECT_TRUE(counted("questions", "f255", 2));
  EXPECT_FALSE(counted("questions", "f256", 1));
  EXPECT_TRUE(counted("questions", "others", 44));
}

TEST_F(StillPanel, EachCounterIsExplained) {
  make(std::chrono::milliseconds(80));
  EXPECT_EQ(panel_->metrics_text(), "");
  judge({std::make_shared<PatientFilter>("silent")});
  EXPECT_TRUE(panel_->metrics_text().starts_with(
      "# HELP nibble_filter_questions_total Texts a filter was asked about.\n"
      "# TYPE nibble_filter_questions_total counter\n"
      "nibble_filter_questions_total{filter=\"silent\"} 1\n"))
      << panel_->metrics_text();
}

TEST_F(StillPanel, WhatComesAfterItsEndIsDropped) {
  make(std::chrono::milliseconds(80));
  const auto filter = std::make_shared<PatientFilter>("a");
  const size_t before = judge({filter});
  const size_t after = judge({filter});
  filter->asked[before](FilterVerdict::hit);  // on its way to the server's thread
  panel_.reset();
  answer(*filter, after, FilterVerdict::hit);
  EXPECT_TRUE(look());
  EXPECT_EQ(verdicts_[before], Verdict());
  EXPECT_EQ(verdicts_[after], Verdict());
}

}  // namespace
}  // namespace nibble
