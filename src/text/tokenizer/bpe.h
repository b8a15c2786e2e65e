// Byte-level BPE on ids: a word's bytes become their byte tokens, then the merge of lowest rank
// (leftmost of equals) is applied until none is left. Knows no text, no vocabulary, no special
// tokens. Short words scan for the best merge, long ones keep a heap: n log n.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace nibble {

struct BpeMerge {
  int32_t left, right, result;  // token ids
};

class BpeModel {
 public:
  /// Buffers of one encoding call, and the words it has met. Not for two threads at once.
  class Scratch {
   public:
    /// Room for remembered words pays off only on longer texts.
    explicit Scratch(size_t text_bytes);

   private:
    friend class BpeModel;
    struct KnownWord {
      uint64_t bytes[2];  // up to 15 bytes, zero-filled, the length last; all zero: empty slot
      int32_t ids[3];
      int32_t count;
    };
    struct Symbol {
      int32_t id;
      int32_t next, previous;  // -1 at the ends
      uint32_t rank;           // of the merge with next, kNoRank if none
    };
    std::vector<KnownWord> known_;
    std::vector<Symbol> symbols_;
    std::vector<uint64_t> heap_;  // rank << 32 | symbol
  };

  /// `byte_ids`: the token of each byte. `merges` in rank order; of a pair named twice the last
  /// counts, as in Hugging Face.
  BpeModel(const std::array<int32_t, 256>& byte_ids, std::span<const BpeMerge> merges);

  /// Appends the ids of one word (at most INT32_MAX bytes) to `out`.
  void encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& out) const;

 private:
  static constexpr uint32_t kNoRank = ~uint32_t{0};
  struct Slot {
    int32_t left = -1, right = -1;
    uint32_t rank = kNoRank;
  };
  uint32_t rank_of(int32_t left, int32_t right) const;
  void merge_word(std::string_view word, Scratch& scratch) const;
  void merge_short(Scratch& scratch) const;
  void merge_long(Scratch& scratch) const;
  uint32_t apply(std::vector<Scratch::Symbol>& symbols, int32_t at) const;

  std::array<int32_t, 256> byte_ids_;
  std::vector<uint32_t> byte_pair_ranks_;  // [256 * left byte + right byte]
  std::vector<Slot> slots_;                // open addressing, a power of two, at most half full
  std::vector<int32_t> results_;           // by rank
};

}  // namespace nibble
