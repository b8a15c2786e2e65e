// Bytes of the tokens so far that do not yet form a character wait in pending_.
#include "text/tokenizer/detokenizer.h"

#include "text/tokenizer/tokenizer_utf8.h"

namespace nibble {

Detokenizer::Detokenizer(Tokenizer tokenizer, SkipSpecial skip)
    : tokenizer_(std::move(tokenizer)), skip_(skip) {}

std::string Detokenizer::push(int32_t id) {
  if (skip_ == SkipSpecial::yes && tokenizer_.is_special(id)) return {};
  pending_ += tokenizer_.id_to_token_bytes(id).value_or(std::string_view{});
  std::string out;
  pending_.erase(0, append_lossy_utf8(out, pending_, Utf8End::keep));
  return out;
}

std::string Detokenizer::flush() {
  std::string out;
  append_lossy_utf8(out, pending_, Utf8End::replace);
  pending_.clear();
  return out;
}

}  // namespace nibble
