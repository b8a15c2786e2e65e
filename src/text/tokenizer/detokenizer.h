// Detokenizer: token ids to text, one id at a time, for streams. Whatever the pushes are, the
// joined output equals Tokenizer::decode of all ids. Never emits half a character. Not a
// stop-string or tag matcher.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "text/tokenizer/tokenizer.h"

namespace nibble {

class Detokenizer {
 public:
  explicit Detokenizer(Tokenizer tokenizer, SkipSpecial skip = SkipSpecial::yes);

  /// Text that became certain with this token: valid UTF-8, often empty in the middle of a
  /// character. Bytes that can no longer become a character come out as U+FFFD.
  std::string push(int32_t id);

  /// The end of the stream: an unfinished character becomes U+FFFD. Ready for a new stream after.
  std::string flush();

  /// Bytes held back, 0..3.
  size_t pending_bytes() const { return pending_.size(); }

 private:
  Tokenizer tokenizer_;
  SkipSpecial skip_;
  std::string pending_;
};

}  // namespace nibble
