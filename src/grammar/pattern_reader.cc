// A recursive-descent parser, then one walk that turns anchors into "anything may stand here".
#include "grammar/pattern_reader.h"

#include <optional>
#include <utility>

namespace nibble {

namespace {

using Kind = PatternNode::Kind;
constexpr int kCountMax = 4096;
constexpr int kDepthMax = 50;

const Characters kDigits = {{'0', '9'}};
const Characters kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const Characters kSpace = {{9, 13},          {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                           {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                           {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const Characters kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

Error refusal(std::string_view why) {
  return make_error(ErrorCode::invalid_argument, {.what = "the pattern", .expected = why});
}

Pattern marker(Kind kind, std::vector<Pattern> parts = {}) {
  return std::make_shared<const PatternNode>(
      PatternNode{.kind = kind, .characters = {}, .parts = std::move(parts)});
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(characters_of_text(text)) {}
  Result<Pattern> choice(int depth);
  bool at_end() const { return at_ == text_.size(); }

 private:
  uint32_t peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : 0xFFFFFFFFU;
  }
  bool take(uint32_t character) {
    if (peek() != character) return false;
    ++at_;
    return true;
  }
  bool take_text(std::string_view text);
  Result<Pattern> sequence(int depth);
  Result<Pattern> atom(int depth);
  Result<Pattern> group(int depth);
  Result<Pattern> quantified(Pattern part);
  Result<Characters> escape();
  Result<uint32_t> code_point(char kind);
  Result<Characters> one_of_class();
  Result<Characters> character_class();
  std::optional<int> number();

  std::vector<uint32_t> text_;
  size_t at_ = 0;
};

bool Reader::take_text(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i)
    if (peek(i) != static_cast<unsigned char>(text[i])) return false;
  at_ += text.size();
  return true;
}

Result<Pattern> Reader::choice(int depth) {
  if (depth > kDepthMax) return refusal(concat("at most ", kDepthMax, " groups in each other"));
  std::vector<Pattern> options;
  options.push_back(TRY(sequence(depth)));
  while (take('|')) options.push_back(TRY(sequence(depth)));
  return choice_pattern(std::move(options));
}

Result<Pattern> Reader::sequence(int depth) {
  std::vector<Pattern> parts;
  while (!at_end() && peek() != '|' && peek() != ')') {
    if (take('^')) {
      parts.push_back(marker(Kind::begin));
    } else if (take('$')) {
      parts.push_back(marker(Kind::end));
    } else {
      Pattern part = TRY(atom(depth));
      const bool whole = part->kind == Kind::ahead || part->kind == Kind::not_ahead;
      if (!whole) part = TRY(quantified(std::move(part)));
      parts.push_back(std::move(part));
    }
  }
  return sequence_pattern(std::move(parts));
}

std::optional<int> Reader::number() {
  std::optional<int> made;
  while (peek() >= '0' && peek() <= '9') {
    made = std::min(made.value_or(0) * 10 + static_cast<int>(peek() - '0'), 1'000'000);
    ++at_;
  }
  return made;
}

Result<Pattern> Reader::quantified(Pattern part) {
  int least = 1;
  int most = 1;
  if (take('*')) {
    least = 0;
    most = -1;
  } else if (take('+')) {
    most = -1;
  } else if (take('?')) {
    least = 0;
  } else if (peek() == '{') {
    const size_t before = at_++;
    const auto low = number();
    const bool comma = low && take(',');
    const auto high = comma ? number() : low;
    if (!low || !take('}')) {
      at_ = before;  // a brace as it is
      return part;
    }
    least = *low;
    most = high.value_or(-1);
    if (least > kCountMax || most > kCountMax || (most >= 0 && most < least))
      return refusal(concat("counts in order and up to ", kCountMax));
  } else {
    return part;
  }
  take('?');  // as few as possible: the same texts
  if (peek() == '*' || peek() == '+' || peek() == '?')
    return refusal("one quantifier after a part, with at most '?' behind it");
  return repeat_pattern(std::move(part), least, most);
}

Result<Pattern> Reader::group(int depth) {
  Kind kind = Kind::sequence;
  if (take_text("?=")) {
    kind = Kind::ahead;
  } else if (take_text("?!")) {
    kind = Kind::not_ahead;
  } else if (take_text("?<=") || take_text("?<!")) {
    return refusal("no look-behind");
  } else if (take_text("?P<") || take_text("?<")) {
    while (!at_end() && !take('>')) ++at_;
  } else if (peek() == '?' && !take_text("?:")) {
    return refusal("groups without flags");
  }
  Pattern inside = TRY(choice(depth + 1));
  if (!take(')')) return refusal("a closing parenthesis");
  return kind == Kind::sequence ? inside : marker(kind, {std::move(inside)});
}

Result<Pattern> Reader::atom(int depth) {
  if (take('(')) return group(depth);
  if (take('[')) return characters_pattern(TRY(character_class()));
  if (take('.')) return characters_pattern(other_characters(kLineEnds));
  if (take('\\')) {
    if (take('b') || take('B')) return refusal("no word boundaries");
    return characters_pattern(TRY(escape()));
  }
  const uint32_t character = peek();
  if (character == '*' || character == '+' || character == '?')
    return refusal("something before a quantifier");
  ++at_;
  return characters_pattern({{character, character}});
}

Result<uint32_t> Reader::code_point(char kind) {
  const auto digits = [&](int count) -> std::optional<uint32_t> {
    uint32_t made = 0;
    for (int i = 0; i < count; ++i) {
      const uint32_t c = peek(static_cast<size_t>(i));
      const uint32_t lower = c | 0x20U;
      if (c >= '0' && c <= '9')
        made = made * 16 + (c - '0');
      else if (c < 0x80 && lower >= 'a' && lower <= 'f')
        made = made * 16 + (lower - 'a' + 10);
      else
        return std::nullopt;
    }
    at_ += static_cast<size_t>(count);
    return made;
  };
  if (kind == 'u' && take('{')) {
    int count = 0;
    while (peek(static_cast<size_t>(count)) != '}' && count < 7) ++count;
    const auto made = digits(count);
    if (made && count > 0 && *made <= kLastCharacter && take('}')) return *made;
    return refusal("\\u{...} with a code point in hexadecimal");
  }
  const auto first = digits(kind == 'x' ? 2 : 4);
  if (!first) return refusal(concat("\\", std::string(1, kind), " with its hexadecimal digits"));
  if (*first < 0xD800 || *first > 0xDBFF || !take_text("\\u")) return *first;
  const auto second = digits(4);
  if (!second || *second < 0xDC00 || *second > 0xDFFF) return refusal("surrogates in pairs");
  return 0x10000 + ((*first - 0xD800) << 10U) + (*second - 0xDC00);
}

Result<Characters> Reader::escape() {
  if (at_end()) return refusal("something after a backslash");
  const uint32_t c = text_[at_++];
  const auto one = [](uint32_t character) { return Characters{{character, character}}; };
  switch (c) {
    case 'd':
      return kDigits;
    case 'D':
      return other_characters(kDigits);
    case 'w':
      return kWord;
    case 'W':
      return other_characters(kWord);
    case 's':
      return kSpace;
    case 'S':
      return other_characters(kSpace);
    case 'n':
      return one('\n');
    case 'r':
      return one('\r');
    case 't':
      return one('\t');
    case 'f':
      return one('\f');
    case 'v':
      return one('\v');
    case '0':
      if (peek() >= '0' && peek() <= '9') return refusal("no octal escapes");
      return one(0);
    case 'c': {
      const uint32_t letter = peek() | 0x20U;
      if (letter < 'a' || letter > 'z') return refusal("\\c with a letter");
      ++at_;
      return one(letter & 0x1FU);
    }
    case 'x':
      return one(TRY(code_point('x')));
    case 'u':
      return one(TRY(code_point('u')));
    case 'p':
    case 'P':
      return refusal("no classes of Unicode properties");
    default:
      break;
  }
  if (c >= '1' && c <= '9') return refusal("no back-references");
  if ((c | 0x20U) >= 'a' && (c | 0x20U) <= 'z')
    return refusal(concat("a known escape; \\", std::string(1, static_cast<char>(c)), " is none"));
  return one(c);
}

Result<Characters> Reader::one_of_class() {
  if (take('\\')) {
    if (take('b')) return Characters{{8, 8}};
    if (take('-')) return Characters{{'-', '-'}};
    return escape();
  }
  const uint32_t c = text_[at_++];
  return Characters{{c, c}};
}

Result<Characters> Reader::character_class() {
  const bool others = take('^');
  Characters made;
  while (!take(']')) {
    if (at_end()) return refusal("a closing bracket");
    Characters first = TRY(one_of_class());
    const bool single = first.size() == 1 && first[0].first == first[0].last;
    if (peek() == '-' && peek(1) != ']' && single && at_ + 1 < text_.size()) {
      ++at_;
      const Characters last = TRY(one_of_class());
      if (last.size() != 1 || last[0].first != last[0].last || last[0].last < first[0].first)
        return refusal("ranges of characters in order");
      first[0].last = last[0].last;
    }
    made.insert(made.end(), first.begin(), first.end());
  }
  return others ? other_characters(made) : sorted(made);
}

bool has_marker(const Pattern& pattern) {
  if (pattern->kind >= Kind::begin) return true;
  for (const Pattern& part : pattern->parts)
    if (has_marker(part)) return true;
  return false;
}

enum class Side : uint8_t { open, closed };

/// The text between two sides: anything more at an open one, unless an anchor closes it.
Result<Pattern> closed(const Pattern& pattern, Side left, Side right);

/// The texts that a look-ahead at the beginning allows to follow it.
Result<Pattern> under_ahead(const PatternNode& look, const Pattern& rest) {
  const Pattern wanted = TRY(closed(look.parts[0], Side::closed, Side::open));
  const Language ahead = TRY(Language::of(wanted));
  const Language all = TRY(Language::of(rest));
  const Language made = look.kind == Kind::ahead ? TRY(Language::both(all, ahead))
                                                 : TRY(Language::without(all, ahead));
  return made.pattern();
}

Result<Pattern> closed_sequence(std::vector<Pattern> parts, Side left, Side right) {
  while (!parts.empty() && parts.front()->kind == Kind::begin) {
    parts.erase(parts.begin());
    left = Side::closed;
  }
  while (!parts.empty() && parts.back()->kind == Kind::end) {
    parts.pop_back();
    right = Side::closed;
  }
  if (!parts.empty() &&
      (parts.front()->kind == Kind::ahead || parts.front()->kind == Kind::not_ahead)) {
    if (left == Side::open) return refusal("look-ahead only behind ^");
    const Pattern look = parts.front();
    parts.erase(parts.begin());
    return under_ahead(*look, TRY(closed_sequence(std::move(parts), Side::closed, right)));
  }
  std::vector<Pattern> made;
  if (left == Side::open && (parts.empty() || !has_marker(parts.front())))
    made.push_back(anything_pattern());
  for (size_t i = 0; i < parts.size(); ++i) {
    const Side before = i == 0 ? left : Side::closed;
    const Side after = i + 1 == parts.size() ? right : Side::closed;
    if (!has_marker(parts[i]))
      made.push_back(parts[i]);
    else if (parts[i]->kind == Kind::choice && (i == 0 || i + 1 == parts.size()))
      made.push_back(TRY(closed(parts[i], before, after)));
    else
      return refusal("anchors at the ends of the pattern or of its alternatives only");
  }
  const bool inner = !parts.empty() && has_marker(parts.back());
  if (right == Side::open && !inner) made.push_back(anything_pattern());
  return sequence_pattern(std::move(made));
}

Result<Pattern> closed(const Pattern& pattern, Side left, Side right) {
  if (pattern->kind == Kind::choice) {
    std::vector<Pattern> made;
    for (const Pattern& part : pattern->parts) made.push_back(TRY(closed(part, left, right)));
    return choice_pattern(std::move(made));
  }
  if (pattern->kind == Kind::sequence) return closed_sequence(pattern->parts, left, right);
  return closed_sequence({pattern}, left, right);
}

/// In a choice at an edge, an anchor in one alternative must not hold for what is inside an
/// alternative that has another beginning in front of it: a choice that begins the sequence may
/// hold ^ and one that ends it $, no other.
bool misplaced(const Pattern& pattern, bool first, bool last) {
  if (pattern->kind == Kind::begin) return !first;
  if (pattern->kind == Kind::end) return !last;
  if (pattern->kind == Kind::repeat) return has_marker(pattern);
  for (size_t i = 0; i < pattern->parts.size(); ++i) {
    const bool choice = pattern->kind != Kind::sequence;
    const bool at_begin = choice || i == 0 || pattern->parts[i - 1]->kind >= Kind::begin;
    const bool at_end =
        choice || i + 1 == pattern->parts.size() || pattern->parts[i + 1]->kind == Kind::end;
    const bool look = pattern->kind == Kind::ahead || pattern->kind == Kind::not_ahead;
    if (misplaced(pattern->parts[i], first && at_begin, look || (last && at_end))) return true;
  }
  return false;
}

}  // namespace

Result<Pattern> read_pattern(std::string_view ecma) {
  Reader reader(ecma);
  const Pattern made = TRY(reader.choice(0));
  if (!reader.at_end()) return refusal("no closing parenthesis without an opening one");
  if (misplaced(made, true, true))
    return refusal("anchors at the ends of the pattern or of its alternatives only");
  return closed(made, Side::open, Side::open);
}

}  // namespace nibble
