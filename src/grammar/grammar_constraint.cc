// xgrammar's matcher as a TokenConstraint. The time of masks is measured; those of a grammar that
// had a long one are made by other threads from then on.
#include <time.h>
#include <xgrammar/matcher.h>

#include <atomic>
#include <thread>

#include "base/check.h"
#include "base/slow_constraint.h"
#include "grammar/compiled_grammar.h"
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

/// The longest that other sequences may wait for a mask.
constexpr int64_t kMaskNsMax = 4'000'000;

int64_t thread_ns() {
  timespec used = {};
  CHECK(::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used) == 0, "the clock of a thread");
  return int64_t{used.tv_sec} * 1'000'000'000 + used.tv_nsec;
}

/// The matcher, and the mask after what it has accepted. A thread that makes the mask holds it too,
/// so it outlives a sequence that is cancelled meanwhile.
class Matching {
 public:
  enum class Made : uint8_t { no, begun, yes };
  explicit Matching(std::shared_ptr<const Grammar> of)
      : grammar(std::move(of)),
        matcher(grammar->compiled),
        words_(static_cast<size_t>(xgrammar::GetBitmaskSize(grammar->vocab_size))) {}

  /// Makes the mask, or finds it made. Nothing: every token may follow.
  std::span<const int32_t> mask() {
    if (made_ != Made::yes) make();
    return limited_ ? std::span<const int32_t>(words_) : std::span<const int32_t>();
  }
  void make() {
    const int64_t begin = thread_ns();
    int64_t shape = static_cast<int64_t>(words_.size());
    DLTensor tensor{.data = words_.data(),
                    .device = {kDLCPU, 0},
                    .ndim = 1,
                    .dtype = xgrammar::GetBitmaskDLType(),
                    .shape = &shape,
                    .strides = nullptr,
                    .byte_offset = 0};
    limited_ = matcher.FillNextTokenBitmask(&tensor);
    if (thread_ns() - begin > kMaskNsMax) make_masks_ahead(*grammar);
    made_ = Made::yes;
  }
  Made made() const { return made_; }
  void begin_making() { made_ = Made::begun; }
  /// The matcher has moved.
  void forget() { made_ = Made::no; }

  const std::shared_ptr<const Grammar> grammar;
  xgrammar::GrammarMatcher matcher;

 private:
  std::atomic<Made> made_ = Made::no;
  bool limited_ = false;
  std::vector<int32_t> words_;
};

class GrammarConstraint final : public SlowConstraint {
 public:
  GrammarConstraint(std::shared_ptr<const Grammar> grammar, int32_t think_end)
      : grammar_(std::move(grammar)),
        matching_(std::make_shared<Matching>(grammar_)),
        think_end_(think_end),
        start_{.thinking = think_end >= 0} {}

  Next next() override {
    if (matching_->made() == Matching::Made::begun) return Next::making;
    const bool free = now().thinking || matching_->matcher.IsTerminated();
    if (!grammar_->slow || free || matching_->made() == Matching::Made::yes) return Next::ready;
    matching_->begin_making();
    MaskThreads::shared().post([matching = matching_] { matching->make(); });
    return Next::making;
  }

  Drafts drafts() const override { return grammar_->slow ? Drafts::alone : Drafts::taken; }

  MaskState mask(std::span<const int32_t> drafted, std::span<uint32_t> bits) override {
    settle();
    xgrammar::GrammarMatcher& matcher = matching_->matcher;
    Standing standing = now();
    int fed = 0;
    bool possible = true;
    for (const int32_t token : drafted) {
      if (pass(token, standing)) continue;
      possible = !matcher.IsTerminated() && matcher.AcceptToken(token);
      if (!possible) break;  // this row follows a draft that cannot be accepted
      ++fed;
    }
    if (fed > 0) matching_->forget();
    const bool ruled = possible && !standing.thinking && !matcher.IsTerminated();
    const bool limited = ruled && limit(bits, standing);
    if (fed > 0) matcher.Rollback(fed);
    if (fed > 0) matching_->forget();
    return limited ? MaskState::limited : MaskState::open;
  }

  std::optional<size_t> accept(std::span<const int32_t> tokens) override {
    settle();
    xgrammar::GrammarMatcher& matcher = matching_->matcher;
    for (size_t i = 0; i < tokens.size(); ++i) {
      Standing standing = now();
      const bool passed = pass(tokens[i], standing);
      if (!passed) matching_->forget();
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
        matching_->matcher.Rollback(1);
        matching_->forget();
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

  /// For callers that do not ask next().
  void settle() const {
    while (matching_->made() == Matching::Made::begun) std::this_thread::yield();
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

  bool limit(std::span<uint32_t> bits, const Standing& standing) {
    const std::span<const int32_t> words = matching_->mask();
    if (words.empty()) return false;  // everything may follow
    CHECK(bits.size() == words.size(), "mask words ", bits.size(), ", grammar ", words.size());
    for (size_t i = 0; i < words.size(); ++i) {
      auto word = static_cast<uint32_t>(words[i]);
      for (const Grammar::LineBreak& lines : grammar_->line_breaks)
        if (lines.count <= standing.breaks_left && static_cast<size_t>(lines.token) / 32 == i)
          word |= 1U << (lines.token % 32);
      bits[i] &= word;
    }
    return true;
  }

  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<Matching> matching_;
  int32_t think_end_;
  Standing start_;
  std::vector<Step> history_;  // of every accepted token
};

}  // namespace

void make_masks_ahead(const Grammar& grammar) { grammar.slow = true; }

std::unique_ptr<TokenConstraint> make_grammar_constraint(std::shared_ptr<const Grammar> grammar,
                                                         int32_t think_end) {
  return std::make_unique<GrammarConstraint>(std::move(grammar), think_end);
}

}  // namespace nibble
