// RepeatIndex: where a growing text said its last tokens before. Looking costs the same however
// long the text is: each place is entered once, by a hash of the tokens before it. It knows the
// last 16,384 places at most, in 64 KiB.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace nibble {

class RepeatIndex {
 public:
  /// Places after `match` equal tokens are found; at least 1.
  explicit RepeatIndex(int32_t match);

  /// Takes in what was said since the last call; `prompt` and what was seen of `generated` must not
  /// have changed.
  void follow(std::span<const int32_t> prompt, std::span<const int32_t> generated);

  /// Returns at most `count` tokens that came after the last earlier place where the text ended as
  /// it ends now. None: it never did, or so long ago that the place was given to another.
  std::vector<int32_t> next(std::span<const int32_t> prompt, std::span<const int32_t> generated,
                            int32_t count) const;

 private:
  void enter(uint64_t hash, int32_t place);
  size_t slot_of(uint64_t hash) const { return (hash >> 20) & (places_.size() - 1); }

  int32_t match_;
  int32_t seen_ = 0;             // tokens of the text
  int32_t before_ = -1;          // the place that the last one took: an earlier one with its hash
  std::vector<int32_t> places_;  // tokens before each, by hash; -1: none
};

}  // namespace nibble
