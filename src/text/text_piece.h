// TextPiece: prompt text that remembers who wrote it. Made by chat templates, read by the
// tokenizer: a special token is one only when all of its characters lie in from_template text.
// Pieces do not cut ordinary text: the tokenizer splits and merges across their borders.
#pragma once

#include <string>

namespace nibble {

enum class Origin {
  from_template,  // trusted: the checkpoint's template and its special tokens
  from_user,      // messages, tools, documents and keyword arguments of a request
};

struct TextPiece {
  std::string text;
  Origin origin = Origin::from_user;
  bool operator==(const TextPiece&) const = default;
};

}  // namespace nibble
