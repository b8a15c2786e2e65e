// Stop strings. StopMatcher finds them in a growing text and holds back what may yet become one;
// StopStrings lets the engine end the sequence at the token that completes one. Both see the same
// text, so they agree on where it is.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/token_constraint.h"
#include "text/tokenizer/detokenizer.h"

namespace nibble {

/// kept: the stop string that ends a text is given as its end.
enum class StopText : uint8_t { cut, kept };

class StopMatcher {
 public:
  /// No string may be empty. An empty list never matches and holds nothing back.
  explicit StopMatcher(std::vector<std::string> stops, StopText text = StopText::cut);

  /// Text that is certain to come before any stop string, or ends with the one that matched and is
  /// kept. After a match: nothing, ever.
  std::string push(std::string_view text);
  /// Text in which no stop string may lie, not even the beginning of one: it comes back whole.
  std::string pass(std::string_view text);
  /// The end of the text: what was held back.
  std::string flush();

  /// The stop string that ended the text: the first to be complete; of two that are complete at
  /// the same byte, the longer.
  const std::optional<std::string>& matched() const { return matched_; }

 private:
  std::vector<std::string> stops_;
  StopText text_;
  std::string held_;
  std::optional<std::string> matched_;
};

class StopStrings final : public TokenConstraint {
 public:
  /// Stop strings are looked for in the text after the first `min_tokens` tokens.
  StopStrings(Tokenizer tokenizer, std::vector<std::string> stops, int32_t min_tokens = 0);
  MaskState mask(std::span<const int32_t> drafted, std::span<uint32_t> bits) override;
  std::optional<size_t> accept(std::span<const int32_t> tokens) override;
  void rollback(size_t count) override;

 private:
  void restart();

  Tokenizer tokenizer_;
  std::vector<std::string> stops_;
  size_t min_tokens_;
  std::vector<int32_t> accepted_;
  Detokenizer detokenizer_;
  StopMatcher matcher_;
};

}  // namespace nibble
