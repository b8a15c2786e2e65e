// The scanner for the Qwen patterns, and the choice between it and PCRE2. The scanner tries the
// alternatives of a pattern in the pattern's order.
#include "text/tokenizer/pre_tokenizer.h"

#include "text/tokenizer/pre_tokenizer_regex.h"
#include "text/tokenizer/tokenizer_utf8.h"
#include "text/tokenizer/unicode_classes.h"

namespace nibble {

namespace {

struct ScannedChar {
  uint8_t bits;  // UnicodeBits; 0xFF at the end of the text, so that no test for absence holds
  uint32_t bytes;
  char ascii;  // 0 if not ASCII
};

class Scanner {
 public:
  Scanner(std::string_view text, KnownPattern pattern)
      : text_(text), word_bits_(pattern == KnownPattern::qwen3_5 ? kLetter | kMark : kLetter) {}

  /// The end of the word that starts at `at` (< text.size()) of valid UTF-8.
  size_t word_end(size_t at) const {
    const ScannedChar first = look(at);
    if (first.ascii == '\'') {
      if (const size_t length = contraction(at); length > 0) return at + length;
    }
    const size_t second_at = at + first.bytes;
    // [^\r\n\p{L}\p{N}]?[word]+
    if ((first.bits & (kLetter | kNumber)) == 0 && !is_newline(first) && is_word(look(second_at))) {
      return end_of_words(second_at);
    }
    if (is_word(first)) return end_of_words(at);
    if (first.bits & kNumber) return second_at;
    //  ?[^\s[word]\p{N}]+[\r\n]*
    if (is_other(first) || (first.ascii == ' ' && is_other(look(second_at)))) {
      return end_of_newlines(end_of_others(second_at));
    }
    return space_end(at);
  }

 private:
  ScannedChar look(size_t at) const {
    if (at >= text_.size()) return {kEnd, 0, 0};
    const auto byte = static_cast<unsigned char>(text_[at]);
    if (byte < 0x80) return {classes_.bits(byte), 1, text_[at]};
    const Utf8Char c = decode_utf8(text_, at);
    return {classes_.bits(c.code), c.bytes, 0};
  }

  static bool is_newline(const ScannedChar& c) { return c.ascii == '\n' || c.ascii == '\r'; }
  bool is_word(const ScannedChar& c) const { return c.bits != kEnd && (c.bits & word_bits_) != 0; }
  bool is_other(const ScannedChar& c) const {
    return (c.bits & (kSpace | kNumber | word_bits_)) == 0;
  }

  size_t end_of_words(size_t at) const {
    for (ScannedChar c = look(at); is_word(c); c = look(at)) at += c.bytes;
    return at;
  }
  size_t end_of_others(size_t at) const {
    for (ScannedChar c = look(at); is_other(c); c = look(at)) at += c.bytes;
    return at;
  }
  size_t end_of_newlines(size_t at) const {
    while (at < text_.size() && (text_[at] == '\n' || text_[at] == '\r')) ++at;
    return at;
  }

  /// Bytes of (?i:'s|'t|'re|'ve|'m|'ll|'d) at `at`, or 0. Ignoring case, U+017F is an s too.
  size_t contraction(size_t at) const {
    const auto lower = [&](size_t i) {
      const char c = at + i < text_.size() ? text_[at + i] : '\0';
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    };
    const char first = lower(1), second = lower(2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
    if ((first == 'r' || first == 'v') && second == 'e') return 3;
    if (first == 'l' && second == 'l') return 3;
    return text_.substr(at + 1, 2) == "\xC5\xBF" ? 3 : 0;
  }

  /// \s*[\r\n]+ up to the last newline of the run, else \s+(?!\S) without its last character,
  /// else \s+.
  size_t space_end(size_t at) const {
    size_t end = at, last = at, after_newline = 0;
    for (ScannedChar c = look(end); c.bits != kEnd && (c.bits & kSpace) != 0; c = look(end)) {
      last = end;
      end += c.bytes;
      if (is_newline(c)) after_newline = end;
    }
    if (after_newline > 0) return after_newline;
    if (end == text_.size() || last == at) return end;
    return last;
  }

  static constexpr uint8_t kEnd = 0xFF;
  std::string_view text_;
  int word_bits_;
  const UnicodeClasses& classes_ = UnicodeClasses::table();
};

}  // namespace

std::string_view known_pattern_text(KnownPattern pattern) {
  switch (pattern) {
    case KnownPattern::qwen3_5:
      return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
             R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    case KnownPattern::qwen2:
      return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
             R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  }
  return {};
}

std::string_view byte_level_pattern_text() {
  return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
}

Result<PreTokenizer> PreTokenizer::make(const std::vector<std::string>& patterns) {
  PreTokenizer made;
  for (const std::string& pattern : patterns) {
    Stage stage;
    if (pattern == known_pattern_text(KnownPattern::qwen2)) {
      stage.known = KnownPattern::qwen2;
    } else if (pattern != known_pattern_text(KnownPattern::qwen3_5)) {
      stage.foreign = TRY(SplitRegex::compile(pattern));
    }
    made.stages_.push_back(std::move(stage));
  }
  return made;
}

Result<void> PreTokenizer::split(std::string_view text, const WordSink& word) const {
  return split_from(0, text, word);
}

Result<void> PreTokenizer::split_from(size_t index, std::string_view text,
                                      const WordSink& word) const {
  if (text.empty()) return {};
  if (index == stages_.size()) {
    word(text);
    return {};
  }
  const Stage& stage = stages_[index];
  const bool is_last = index + 1 == stages_.size();
  if (stage.foreign != nullptr) {
    return stage.foreign->split(text, [&](std::string_view piece) -> Result<void> {
      return split_from(index + 1, piece, word);
    });
  }
  const Scanner scanner(text, stage.known);
  for (size_t at = 0; at < text.size();) {
    const size_t end = scanner.word_end(at);
    const std::string_view piece = text.substr(at, end - at);
    if (is_last) {
      word(piece);
    } else {
      TRY(split_from(index + 1, piece, word));
    }
    at = end;
  }
  return {};
}

}  // namespace nibble
