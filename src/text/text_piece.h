// TextPiece: a stretch of prompt text that remembers who wrote it. The seam between chat templates,
// which produce pieces, and the tokenizer, which lets only template text become special tokens.
#pragma once

#include <string>

namespace nibble {

struct TextPiece {
  enum class Origin { from_template, from_user };

  std::string text;  // UTF-8; invalid bytes are read as U+FFFD
  Origin origin = Origin::from_user;
};

}  // namespace nibble
