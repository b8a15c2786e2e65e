// xgrammar's matcher as a TokenConstraint.
#include <xgrammar/matcher.h>

#include "base/check.h"
#include "grammar/compiled_grammar.h"

namespace nibble {

namespace {

/// The position of a sequence. Thinking is free; then up to two line breaks may come, as the model
/// is used to; then the grammar rules.
struct Standing {
  static constexpr int kBreaksMax = 2;
  bool thinking = false;
  int breaks_left = 0;
};

class GrammarConstraint final : public TokenConstraint {
 public:
  GrammarConstraint(std::shared_ptr<const Grammar> grammar, int32_t think_end)
      : grammar_(std::move(grammar)),
        matcher_(grammar_->compiled),
        think_end_(think_end),
        start_{.thinking = think_end >= 0},
        mask_(static_cast<size_t>(xgrammar::GetBitmaskSize(grammar_->vocab_size))) {}

  MaskState mask(std::span<const int32_t> drafted, std::span<uint32_t> bits) override {
    Standing standing = now();
    int fed = 0;
    bool possible = true;
    for (const int32_t token : drafted) {
      if (pass(token, standing)) continue;
      possible = !matcher_.IsTerminated() && matcher_.AcceptToken(token);
      if (!possible) break;  // this row follows a draft that cannot be accepted
      ++fed;
    }
    const bool ruled = possible && !standing.thinking && !matcher_.IsTerminated();
    const bool limited = ruled && limit(bits, standing);
    if (fed > 0) matcher_.Rollback(fed);
    return limited ? MaskState::limited : MaskState::open;
  }

  std::optional<size_t> accept(std::span<const int32_t> tokens) override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      Standing standing = now();
      const bool passed = pass(tokens[i], standing);
      // Refused: a stop id that the request ignores, or one that another constraint forced.
      if (!passed && (matcher_.IsTerminated() || !matcher_.AcceptToken(tokens[i]))) return i;
      history_.push_back({.after = standing, .fed = !passed});
      if (matcher_.IsTerminated()) return i;
    }
    return std::nullopt;
  }

  void rollback(size_t count) override {
    CHECK(count <= history_.size(), "rollback ", count, " of ", history_.size());
    for (; count > 0; --count) {
      if (history_.back().fed) matcher_.Rollback(1);
      history_.pop_back();
    }
  }

 private:
  struct Step {
    Standing after;
    bool fed = false;  // to the matcher
  };

  const Standing& now() const { return history_.empty() ? start_ : history_.back().after; }

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
    int64_t shape = static_cast<int64_t>(mask_.size());
    DLTensor tensor{.data = mask_.data(),
                    .device = {kDLCPU, 0},
                    .ndim = 1,
                    .dtype = xgrammar::GetBitmaskDLType(),
                    .shape = &shape,
                    .strides = nullptr,
                    .byte_offset = 0};
    if (!matcher_.FillNextTokenBitmask(&tensor)) return false;  // everything may follow
    CHECK(bits.size() == mask_.size(), "mask words ", bits.size(), ", grammar ", mask_.size());
    for (const Grammar::LineBreak& lines : grammar_->line_breaks)
      if (lines.count <= standing.breaks_left)
        mask_[static_cast<size_t>(lines.token) / 32] |=
            static_cast<int32_t>(1U << (lines.token % 32));
    for (size_t i = 0; i < mask_.size(); ++i) bits[i] &= static_cast<uint32_t>(mask_[i]);
    return true;
  }

  std::shared_ptr<const Grammar> grammar_;
  xgrammar::GrammarMatcher matcher_;
  int32_t think_end_;
  Standing start_;
  std::vector<int32_t> mask_;
  std::vector<Step> history_;  // of every accepted token
};

}  // namespace

std::unique_ptr<TokenConstraint> make_grammar_constraint(std::shared_ptr<const Grammar> grammar,
                                                         int32_t think_end) {
  return std::make_unique<GrammarConstraint>(std::move(grammar), think_end);
}

}  // namespace nibble
