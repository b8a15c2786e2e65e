// Added tokens (<|im_end|>, <think> ...): finding them in text, leftmost and then longest, as
// Hugging Face does before any word is cut. Positions that came from a user never match.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace nibble {

struct AddedToken {
  int32_t id = -1;
  std::string content;
  bool lstrip = false, rstrip = false;  // swallows white space on that side
  bool normalized = false;              // looked for after NFC instead of before
  bool special = false;                 // left out when decoding skips special tokens
};

/// Half-open byte range.
struct ByteRange {
  size_t begin, end;
};

/// A stretch of text between added tokens (id -1), or an added token.
struct AddedTokenSpan {
  ByteRange range;
  int32_t id = -1;
};

class AddedTokenMatcher {
 public:
  /// Longer contents are refused at load: they bound the work per position.
  static constexpr size_t kContentBytesMax = 1024;

  void add(const AddedToken& token);

  /// Consecutive non-empty spans that together are `text` (valid UTF-8). Tokens are recognised only
  /// inside one of the `trusted` ranges (ascending, not touching).
  std::vector<AddedTokenSpan> split(std::string_view text,
                                    const std::vector<ByteRange>& trusted) const;
  bool empty() const { return tokens_.empty(); }

 private:
  struct Match {
    size_t end = 0;
    int32_t token = -1;  // index into tokens_
  };
  Match longest_at(std::string_view text, size_t at) const;

  // A trie in one table: (node << 8 | byte) -> node.
  std::unordered_map<uint64_t, uint32_t> children_;
  std::vector<int32_t> token_of_node_ = {-1};
  std::vector<AddedToken> tokens_;
  bool starts_[256] = {};
};

}  // namespace nibble
