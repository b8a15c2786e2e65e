// Jinja's lexical rules: where text ends, what a dash or plus beside a tag strips, and the tokens
// inside tags. Line statements do not exist here.
#include "text/jinja/lexer.h"

#include <algorithm>

#include "text/jinja/string_literal.h"
#include "text/jinja/unicode.h"

namespace nibble::jinja {

namespace {

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

std::string_view strip_right(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const size_t begin = previous_character(text, end);
    if (!is_space(code_point_at(text, begin))) break;
    end = begin;
  }
  return text.substr(0, end);
}

bool all_space(std::string_view text) { return strip_right(text).empty(); }

class Lexer {
 public:
  Lexer(std::string source, std::string_view name) : source_(std::move(source)), name_(name) {}

  Result<std::vector<Token>> run() {
    while (position_ < source_.size()) TRY(text_and_tag());
    add(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  bool at(std::string_view word) const {
    return std::string_view(source_).substr(position_, word.size()) == word;
  }
  char peek(size_t ahead = 0) const {
    return position_ + ahead < source_.size() ? source_[position_ + ahead] : '\0';
  }
  void advance(size_t count) {
    const auto begin = source_.begin() + static_cast<ptrdiff_t>(position_);
    line_ += static_cast<int>(std::count(begin, begin + static_cast<ptrdiff_t>(count), '\n'));
    position_ += count;
  }
  void skip_space() {
    while (position_ < source_.size() && is_space(code_point_at(source_, position_))) {
      advance(next_character(source_, position_) - position_);
    }
  }
  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  Error error(std::string_view what) const { return syntax_error(name_, line_, what); }

  size_t find_tag(size_t from) const {
    for (size_t at = source_.find('{', from); at != std::string::npos;
         at = source_.find('{', at + 1)) {
      const char next = at + 1 < source_.size() ? source_[at + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') return at;
    }
    return source_.size();
  }

  /// The part of the text before a tag that stays, by the sign after "{%" and lstrip_blocks.
  std::string_view keep_before(std::string_view text, char sign, char tag) const {
    if (sign == '-') return strip_right(text);
    if (sign == '+' || tag == '{') return text;
    const size_t line = text.rfind('\n') + 1;  // 0 without a newline
    if (line == 0 && !line_starting_) return text;
    return all_space(text.substr(line)) ? text.substr(0, line) : text;
  }

  Result<void> text_and_tag() {
    const size_t tag = find_tag(position_);
    const auto text = std::string_view(source_).substr(position_, tag - position_);
    if (tag == source_.size()) {
      add(TokenKind::text, std::string(text));
      position_ = tag;
      return {};
    }
    const char kind = source_[tag + 1];
    const char after = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const char sign = after == '-' || after == '+' ? after : '\0';
    const std::string_view kept = keep_before(text, sign, kind);
    if (!kept.empty()) add(TokenKind::text, std::string(kept));
    advance(tag - position_ + 2 + (sign != '\0' ? 1 : 0));
    if (kind == '#') return comment();
    if (kind == '%' && raw_begins()) return raw();
    add(kind == '{' ? TokenKind::variable_begin : TokenKind::block_begin, "");
    return inside(kind == '{' ? "}}" : "%}");
  }

  /// Just past an end mark such as "%}" whose sign was `sign`: strip what follows.
  void after_end(char sign, char tag) {
    const size_t end = position_;
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && tag != '}' && peek() == '\n') {
      advance(1);  // trim_blocks
    }
    line_starting_ = position_ > end && source_[position_ - 1] == '\n';
  }

  Result<void> comment() {
    const size_t end = source_.find("#}", position_);
    if (end == std::string::npos) return error("missing end of comment tag '#}'");
    const char before = end > position_ ? source_[end - 1] : '\0';
    advance(end + 2 - position_);
    after_end(before == '-' || before == '+' ? before : '\0', '#');
    return {};
  }

  /// Called after "{%" was read: if this is {% raw %}, it is read to its end.
  bool raw_begins() {
    const size_t start = position_;
    const int line = line_;
    skip_space();
    if (at("raw")) {
      advance(3);
      skip_space();
      if (at("%}")) {
        advance(2);
        return true;
      }
      if (at("-%}")) {
        advance(3);
        skip_space();
        return true;
      }
    }
    position_ = start;
    line_ = line;
    return false;
  }

  Result<void> raw() {
    line_starting_ = position_ > 0 && source_[position_ - 1] == '\n';
    const size_t begin = position_;
    for (size_t tag = source_.find("{%", begin); tag != std::string::npos;
         tag = source_.find("{%", tag + 1)) {
      position_ = tag + 2;
      const char sign = peek() == '-' || peek() == '+' ? peek() : '\0';
      if (sign != '\0') ++position_;
      while (position_ < source_.size() && is_space(code_point_at(source_, position_))) {
        position_ = next_character(source_, position_);
      }
      if (!at("endraw")) continue;
      position_ += 6;
      while (position_ < source_.size() && is_space(code_point_at(source_, position_))) {
        position_ = next_character(source_, position_);
      }
      const char end_sign = at("-%}") || at("+%}") ? peek() : '\0';
      if (end_sign == '\0' && !at("%}")) continue;
      const size_t end = position_ + (end_sign != '\0' ? 3 : 2);
      const auto text = std::string_view(source_).substr(begin, tag - begin);
      add(TokenKind::text, std::string(keep_before(text, sign, '%')));
      position_ = begin;
      advance(end - begin);
      after_end(end_sign, '%');
      return {};
    }
    return error("missing end of raw directive");
  }

  /// Tokens up to the end mark ("}}" or "%}"); brackets hide it.
  Result<void> inside(std::string_view end) {
    std::string open;
    for (;;) {
      skip_space();
      if (position_ >= source_.size()) {
        return error(concat("unexpected end of template, expected '", end, "'"));
      }
      if (open.empty() && ends_here(end)) return {};
      if (is_name_start(peek())) {
        name_token();
      } else if (is_digit(peek())) {
        TRY(number());
      } else if (peek() == '\'' || peek() == '"') {
        TRY(string());
      } else {
        TRY(operator_token(open));
      }
    }
  }

  bool ends_here(std::string_view end) {
    const char sign = peek() == '-' || (peek() == '+' && end[0] == '%') ? peek() : '\0';
    const size_t skip = sign != '\0' ? 1 : 0;
    if (std::string_view(source_).substr(position_ + skip, 2) != end) return false;
    add(end[0] == '}' ? TokenKind::variable_end : TokenKind::block_end, "");
    advance(skip + 2);
    after_end(sign, end[0]);
    return true;
  }

  void name_token() {
    size_t end = position_;
    while (end < source_.size() && (is_name_start(source_[end]) || is_digit(source_[end]))) ++end;
    add(TokenKind::name, source_.substr(position_, end - position_));
    position_ = end;
  }

  Result<void> number() {
    const NumberSpan span = scan_number(std::string_view(source_).substr(position_));
    if (span.length == 0) return error("malformed number");
    std::string digits = source_.substr(position_, span.length);
    std::erase(digits, '_');
    add(span.is_float ? TokenKind::floating : TokenKind::integer, std::move(digits));
    position_ += span.length;
    return {};
  }

  Result<void> string() {
    const char quote = peek();
    size_t end = position_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return error("a string has no closing quote");
    const auto body = std::string_view(source_).substr(position_ + 1, end - position_ - 1);
    auto value = unescape(body);
    if (!value.ok()) return error(value.error().message);
    add(TokenKind::string, std::move(value).value());
    advance(end + 1 - position_);
    return {};
  }

  Result<void> operator_token(std::string& open) {
    static constexpr std::string_view kOperators[] = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (const std::string_view op : kOperators) {
      if (!at(op)) continue;
      if (op == "(") open.push_back(')');
      if (op == "[") open.push_back(']');
      if (op == "{") open.push_back('}');
      if (op == ")" || op == "]" || op == "}") {
        if (open.empty()) return error(concat("unexpected '", op, "'"));
        if (open.back() != op[0]) {
          return error(concat("unexpected '", op, "', expected '", open.back(), "'"));
        }
        open.pop_back();
      }
      add(TokenKind::op, std::string(op));
      position_ += op.size();
      return {};
    }
    const size_t end = next_character(source_, position_);
    return error(concat("unexpected character '", source_.substr(position_, end - position_), "'"));
  }

  std::string source_;
  std::string_view name_;
  size_t position_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // the text that follows begins a line
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> lex(std::string_view source, std::string_view name) {
  return Lexer(normalize_newlines(source), name).run();
}

Error syntax_error(std::string_view name, int line, std::string_view what) {
  return Error{ErrorCode::corrupt, concat(name, " line ", line, ": ", what)};
}
Error unsupported_error(std::string_view name, int line, std::string_view what) {
  return Error{ErrorCode::unsupported,
               concat(name, " line ", line, ": ", what,
                      " is not supported by Nibble's template interpreter")};
}

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::end:
      return "the end of the template";
    case TokenKind::text:
      return "text";
    case TokenKind::variable_begin:
      return "'{{'";
    case TokenKind::variable_end:
      return "'}}'";
    case TokenKind::block_begin:
      return "'{%'";
    case TokenKind::block_end:
      return "'%}'";
    case TokenKind::string:
      return "a string";
    default:
      return concat("'", token.text.substr(0, 100), "'");
  }
}

}  // namespace nibble::jinja
