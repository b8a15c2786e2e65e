// The grammar as a TokenConstraint: thinking and line breaks come first, then the masks of a
// MaskMaker.
#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/slow_constraint.h"
#include "grammar/compiled_grammar.h"
#include "grammar/mask_maker.h"
#include "grammar/mask_threads.h"
#include "grammar/slow_masks.h"

namespace nibble {

namespace {

/// The position of a sequence. Thinking is free; then up to two line breaks may come, as the model
/// is used to; then the grammar rules.
struct Standing {
  static constexpr int kBreaksMax = 2;
  bool thinking = false;
  int breaks_left = 0;
};

/// The time for which a pass may wait for masks. Then they count as long ones.
constexpr std::chrono::milliseconds kSoon{2};

class GrammarConstraint final : public SlowConstraint {
 public:
  GrammarConstraint(std::shared_ptr<const Grammar> grammar, int32_t think_end)
      : grammar_(std::move(grammar)),
        maker_(std::make_shared<MaskMaker>(grammar_)),
        think_end_(think_end),
        start_{.thinking = think_end >= 0} {}

  Next next(std::span<const int32_t> drafted) override {
    if (maker_->state() == MaskMaker::State::idle) {
      Way way = way_of(drafted);
      if (!way.ruled || maker_->matcher.IsTerminated() || maker_->has_all(way.fed))
        return Next::ready;
      maker_->begin(std::move(way.fed));
    }
    MaskThreads::quick().relieve();
    return !grammar_->slow && maker_->age() < kSoon ? Next::soon : Next::making;
  }

  Next find_forced(size_t most) override {
    if (maker_->state() == MaskMaker::State::idle) {
      if (!rules_now() || grammar_->slow || maker_->has_forced(most)) return Next::ready;
      maker_->begin_forced(most);
    }
    MaskThreads::quick().relieve();
    return !grammar_->slow && maker_->age() < kSoon ? Next::soon : Next::making;
  }

  std::vector<int32_t> forced(size_t most) override {
    if (maker_->state() != MaskMaker::State::idle || !rules_now()) return {};
    const auto found = maker_->forced();
    const auto first = found.first(std::min(most, found.size()));
    return {first.begin(), first.end()};
  }

  /// Counts what thinking and line breaks let pass, and what the matcher would accept of the rest.
  size_t fitting(std::span<const int32_t> drafted) override {
    if (maker_->state() != MaskMaker::State::idle) return drafted.size();
    const Way way = way_of(drafted);
    size_t left = maker_->fitting(way.fed);
    if (left == way.fed.size()) return drafted.size();
    Standing standing = now();
    for (size_t i = 0; i < drafted.size(); ++i)
      if (!pass(drafted[i], standing) && left-- == 0) return i;
    return drafted.size();
  }

  Drafts drafts() const override { return grammar_->slow ? Drafts::alone : Drafts::taken; }

  MaskState mask(std::span<const int32_t> drafted, std::span<uint32_t> bits) override {
    settle();
    const Way way = way_of(drafted);
    if (way.standing.thinking || maker_->matcher.IsTerminated()) return MaskState::open;
    const MaskMaker::Mask& mask = maker_->mask(way.fed);
    if (mask.kind == MaskMaker::Mask::Kind::open) return MaskState::open;
    limit(bits, mask.words, way.standing);
    return MaskState::limited;
  }

  std::optional<size_t> accept(std::span<const int32_t> tokens) override {
    settle();
    xgrammar::GrammarMatcher& matcher = maker_->matcher;
    for (size_t i = 0; i < tokens.size(); ++i) {
      Standing standing = now();
      const bool passed = pass(tokens[i], standing);
      if (!passed) maker_->forget();
      // Refused: a stop id that the request ignores, or one that another constraint forced.
      if (!passed && (matcher.IsTerminated() || !matcher.AcceptToken(tokens[i]))) return i;
      history_.push_back({.after = standing, .fed = !passed});
      if (matcher.IsTerminated()) return i;
    }
    return std::nullopt;
  }

  void rollback(size_t count) override {
    settle();
    CHECK(count <= history_.size(), "rollback ", count, " of ", history_.size());
    for (; count > 0; --count) {
      if (history_.back().fed) {
        maker_->matcher.Rollback(1);
        maker_->forget();
      }
      history_.pop_back();
    }
  }

 private:
  struct Step {
    Standing after;
    bool fed = false;  // to the matcher
  };

  const Standing& now() const { return history_.empty() ? start_ : history_.back().after; }

  /// True if the grammar alone judges the next token.
  bool rules_now() const {
    return !now().thinking && now().breaks_left == 0 && !maker_->matcher.IsTerminated();
  }

  /// For callers that do not ask next().
  void settle() const {
    while (maker_->state() == MaskMaker::State::begun) std::this_thread::yield();
  }

  /// True if the token is not the grammar's to judge; otherwise the grammar takes it.
  bool pass(int32_t token, Standing& standing) const {
    if (standing.thinking) {
      if (token == think_end_) standing = {.thinking = false, .breaks_left = Standing::kBreaksMax};
      return true;
    }
    for (const Grammar::LineBreak& lines : grammar_->line_breaks)
      if (lines.token == token && lines.count <= standing.breaks_left) {
        standing.breaks_left -= lines.count;
        return true;
      }
    standing.breaks_left = 0;
    return false;
  }

  /// The position after drafts, and those of them that the grammar judges.
  struct Way {
    Standing standing;
    std::vector<int32_t> fed;
    bool ruled = false;  // the grammar rules after some of them, or after none
  };
  Way way_of(std::span<const int32_t> drafted) const {
    Way way{.standing = now(), .fed = {}, .ruled = !now().thinking};
    for (const int32_t token : drafted) {
      if (!pass(token, way.standing)) way.fed.push_back(token);
      way.ruled = way.ruled || !way.standing.thinking;
    }
    return way;
  }

  void limit(std::span<uint32_t> bits, std::span<const int32_t> words,
             const Standing& standing) const {
    CHECK(bits.size() == words.size(), "mask words ", bits.size(), ", grammar ", words.size());
    for (size_t i = 0; i < words.size(); ++i) {
      auto word = static_cast<uint32_t>(words[i]);
      for (const Grammar::LineBreak& lines : grammar_->line_breaks)
        if (lines.count <= standing.breaks_left && static_cast<size_t>(lines.token) / 32 == i)
          word |= 1U << (lines.token % 32);
      bits[i] &= word;
    }
  }

  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<MaskMaker> maker_;
  int32_t think_end_;
  Standing start_;
  std::vector<Step> history_;  // of every accepted token
};

}  // namespace

void before_masks(const Grammar& grammar, std::function<void()> call) {
  grammar.before_mask = std::move(call);
}

void mark_slow(const Grammar& grammar) { grammar.slow = true; }

std::unique_ptr<TokenConstraint> make_grammar_constraint(std::shared_ptr<const Grammar> grammar,
                                                         int32_t think_end) {
  return std::make_unique<GrammarConstraint>(std::move(grammar), think_end);
}

}  // namespace nibble
