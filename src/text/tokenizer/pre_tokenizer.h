// PreTokenizer: cuts text into words by the regular expressions of a tokenizer.json; BPE never
// merges across a cut. The Qwen patterns run as a hand-written scanner, any other through PCRE2's
// JIT. Knows nothing of tokens.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nibble {

class SplitRegex;

/// Patterns the scanner knows by heart; each covers every text without gaps.
enum class KnownPattern {
  qwen3_5,  // combining marks belong to words
  qwen2,    // combining marks are punctuation; Qwen2, Qwen2.5, Qwen3
};

/// The regular expression the scanner is equal to.
std::string_view known_pattern_text(KnownPattern pattern);
/// The pattern used by a ByteLevel pre-tokenizer with use_regex, which names none.
std::string_view byte_level_pattern_text();

class PreTokenizer {
 public:
  using WordSink = std::function<void(std::string_view)>;

  /// Patterns in Oniguruma's syntax, each applied to the pieces of the one before; none at all
  /// leaves text whole. Errors: unsupported (a construct that PCRE2 would read otherwise), corrupt
  /// (not a regular expression).
  static Result<PreTokenizer> make(const std::vector<std::string>& patterns);

  /// Calls `word` for consecutive non-empty pieces that together are `text` (valid UTF-8). Views
  /// point into `text`. Errors: only for foreign patterns (unsupported: matching took too long).
  Result<void> split(std::string_view text, const WordSink& word) const;

 private:
  struct Stage {
    KnownPattern known = KnownPattern::qwen3_5;
    std::shared_ptr<const SplitRegex> foreign;  // null: use `known`
  };
  Result<void> split_from(size_t stage, std::string_view text, const WordSink& word) const;
  std::vector<Stage> stages_;
};

}  // namespace nibble
