// A trie walked from each position whose byte starts some token.
#include "text/tokenizer/tokenizer_added.h"

#include <algorithm>

#include "text/tokenizer/tokenizer_utf8.h"
#include "text/tokenizer/unicode_classes.h"

namespace nibble {

namespace {

bool is_space(char32_t code) { return (UnicodeClasses::table().bits(code) & kSpace) != 0; }

size_t spaces_before(std::string_view text, size_t at, size_t stop) {
  while (at > stop) {
    const size_t start = last_utf8_start(text.substr(0, at));
    if (!is_space(decode_utf8(text, start).code)) break;
    at = start;
  }
  return std::max(at, stop);
}

size_t spaces_after(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Utf8Char c = decode_utf8(text, at);
    if (!is_space(c.code)) break;
    at += c.bytes;
  }
  return at;
}

}  // namespace

void AddedTokenMatcher::add(const AddedToken& token) {
  if (token.content.empty()) return;
  uint32_t node = 0;
  for (const char c : token.content) {
    const auto next = static_cast<uint32_t>(token_of_node_.size());
    const auto [child, is_new] =
        children_.try_emplace(uint64_t{node} << 8 | static_cast<unsigned char>(c), next);
    if (is_new) token_of_node_.push_back(-1);
    node = child->second;
  }
  token_of_node_[node] = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
  starts_[static_cast<unsigned char>(token.content[0])] = true;
}

AddedTokenMatcher::Match AddedTokenMatcher::longest_at(std::string_view text, size_t at) const {
  Match best;
  uint32_t node = 0;
  while (at < text.size()) {
    const auto child = children_.find(uint64_t{node} << 8 | static_cast<unsigned char>(text[at]));
    if (child == children_.end()) break;
    node = child->second;
    ++at;
    if (token_of_node_[node] >= 0) best = {at, token_of_node_[node]};
  }
  return best;
}

std::vector<AddedTokenSpan> AddedTokenMatcher::split(std::string_view text,
                                                     const std::vector<ByteRange>& trusted) const {
  std::vector<AddedTokenSpan> spans;
  size_t done = 0;
  for (const ByteRange& range : trusted) {
    const std::string_view visible = text.substr(0, range.end);
    for (size_t at = range.begin; at < range.end;) {
      if (!starts_[static_cast<unsigned char>(text[at])]) {
        ++at;
        continue;
      }
      const Match match = longest_at(visible, at);
      if (match.token < 0) {
        ++at;
        continue;
      }
      const AddedToken& token = tokens_[match.token];
      size_t begin = std::max(at, done), end = match.end;
      at = match.end;
      if (token.lstrip) begin = spaces_before(text, begin, done);
      if (token.rstrip) end = spaces_after(text, end);
      if (done < begin) spans.push_back({{done, begin}, -1});
      spans.push_back({{begin, end}, token.id});
      done = end;
    }
  }
  if (done < text.size()) spans.push_back({{done, text.size()}, -1});
  return spans;
}

}  // namespace nibble
