// TokenLimits: tokens that a request allows, and words that it bans (vLLM's allowed_token_ids and
// bad_words), over token ids alone.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/token_constraint.h"
#include "text/tokenizer/tokenizer.h"

namespace nibble {

class TokenLimits final : public TokenConstraint {
 public:
  struct Options {
    std::vector<int32_t> allowed;              // no other token may follow; empty: all may
    std::vector<std::vector<int32_t>> banned;  // none of them may be completed; none is empty
    std::vector<int32_t> exempt;               // may follow whatever the two above say
  };
  explicit TokenLimits(Options options);

  MaskState mask(std::span<const int32_t> drafted, std::span<uint32_t> bits) override;
  std::optional<size_t> accept(std::span<const int32_t> tokens) override;
  void rollback(size_t count) override;
  size_t fitting(std::span<const int32_t> drafted) override;

 private:
  /// The tokens so far, the accepted and then `drafted`, end with all of `word` but its last token.
  bool about_to_say(std::span<const int32_t> word, std::span<const int32_t> drafted) const;

  std::vector<uint32_t> allowed_;             // one bit per token; empty: all may follow
  std::vector<std::vector<int32_t>> banned_;  // without those that end with an exempt token
  std::vector<int32_t> accepted_;
};

/// The token sequences that spell `word` at the beginning of a text and, where that is the same
/// number of tokens and begins with another one, after a space: what vLLM bans.
Result<std::vector<std::vector<int32_t>>> spellings_of(const Tokenizer& tokenizer,
                                                       std::string_view word);

}  // namespace nibble
