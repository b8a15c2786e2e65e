// The pair table, the two merge loops and the per-call memory of short words.
#include "text/tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>

#include "base/check.h"

namespace nibble {

namespace {

constexpr size_t kKnownWords = 8192;         // 256 KiB: stays in the second-level cache
constexpr size_t kRememberFromBytes = 2048;  // shorter texts repeat too little
constexpr size_t kShortWord = 24;            // symbols; above, the heap wins

uint64_t mix(uint64_t key) {
  key ^= key >> 32;
  key *= 0x9E3779B97F4A7C15u;
  key ^= key >> 29;
  key *= 0xBF58476D1CE4E5B9u;
  return key ^ key >> 32;
}

uint64_t pair_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

}  // namespace

BpeModel::Scratch::Scratch(size_t text_bytes) {
  if (text_bytes >= kRememberFromBytes) known_.resize(kKnownWords);
}

BpeModel::BpeModel(const std::array<int32_t, 256>& byte_ids, std::span<const BpeMerge> merges)
    : byte_ids_(byte_ids),
      byte_pair_ranks_(256 * 256, kNoRank),
      slots_(std::bit_ceil(2 * merges.size() + 2)) {
  CHECK(merges.size() < kNoRank, "too many merges: ", merges.size());
  results_.reserve(merges.size());
  for (const BpeMerge& merge : merges) {
    size_t at = mix(pair_key(merge.left, merge.right)) & (slots_.size() - 1);
    while (slots_[at].rank != kNoRank &&
           (slots_[at].left != merge.left || slots_[at].right != merge.right)) {
      at = (at + 1) & (slots_.size() - 1);
    }
    slots_[at] = {merge.left, merge.right, static_cast<uint32_t>(results_.size())};
    results_.push_back(merge.result);
  }
  for (size_t left = 0; left < 256; ++left) {
    for (size_t right = 0; right < 256; ++right) {
      byte_pair_ranks_[256 * left + right] = rank_of(byte_ids_[left], byte_ids_[right]);
    }
  }
}

uint32_t BpeModel::rank_of(int32_t left, int32_t right) const {
  size_t at = mix(pair_key(left, right)) & (slots_.size() - 1);
  while (slots_[at].rank != kNoRank) {
    if (slots_[at].left == left && slots_[at].right == right) return slots_[at].rank;
    at = (at + 1) & (slots_.size() - 1);
  }
  return kNoRank;
}

void BpeModel::encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& out) const {
  if (word.size() == 1) {
    out.push_back(byte_ids_[static_cast<unsigned char>(word[0])]);
    return;
  }
  Scratch::KnownWord* known = nullptr;
  uint64_t key[2] = {0, 0};
  if (!scratch.known_.empty() && word.size() <= 15) {
    std::memcpy(key, word.data(), word.size());
    key[1] |= uint64_t{word.size()} << 56;
    known = &scratch.known_[mix(key[0] ^ mix(key[1])) & (kKnownWords - 1)];
    if (known->bytes[0] == key[0] && known->bytes[1] == key[1]) {
      out.insert(out.end(), known->ids, known->ids + known->count);
      return;
    }
  }
  merge_word(word, scratch);
  const size_t first = out.size();
  for (int32_t at = word.empty() ? -1 : 0; at >= 0; at = scratch.symbols_[at].next) {
    out.push_back(scratch.symbols_[at].id);
  }
  const size_t count = out.size() - first;
  if (known != nullptr && count <= 3) {
    std::memcpy(known->bytes, key, sizeof key);
    std::copy_n(out.begin() + static_cast<ptrdiff_t>(first), count, known->ids);
    known->count = static_cast<int32_t>(count);
  }
}

void BpeModel::merge_word(std::string_view word, Scratch& scratch) const {
  CHECK(word.size() <= std::numeric_limits<int32_t>::max(), "a word of ", word.size(), " bytes");
  auto& symbols = scratch.symbols_;
  symbols.resize(word.size());
  for (size_t i = 0; i < word.size(); ++i) {
    const auto byte = static_cast<unsigned char>(word[i]);
    const bool is_last = i + 1 == word.size();
    const auto following = static_cast<unsigned char>(is_last ? 0 : word[i + 1]);
    symbols[i] = {byte_ids_[byte], is_last ? -1 : static_cast<int32_t>(i + 1),
                  static_cast<int32_t>(i) - 1,
                  is_last ? kNoRank : byte_pair_ranks_[256u * byte + following]};
  }
  if (word.size() <= kShortWord) {
    merge_short(scratch);
  } else {
    merge_long(scratch);
  }
}

/// Merges the symbol `at` with its next and updates the ranks around it; returns its new rank.
uint32_t BpeModel::apply(std::vector<Scratch::Symbol>& symbols, int32_t at) const {
  Scratch::Symbol& symbol = symbols[at];
  Scratch::Symbol& gone = symbols[symbol.next];
  symbol.id = results_[symbol.rank];
  symbol.next = gone.next;
  symbol.rank = kNoRank;
  gone.rank = kNoRank;
  if (symbol.next >= 0) {
    symbols[symbol.next].previous = at;
    symbol.rank = rank_of(symbol.id, symbols[symbol.next].id);
  }
  if (symbol.previous >= 0) {
    Scratch::Symbol& before = symbols[symbol.previous];
    before.rank = rank_of(before.id, symbol.id);
  }
  return symbol.rank;
}

void BpeModel::merge_short(Scratch& scratch) const {
  auto& symbols = scratch.symbols_;
  while (true) {
    uint32_t best_rank = kNoRank;
    int32_t best = -1;
    for (int32_t at = symbols.empty() ? -1 : 0; at >= 0; at = symbols[at].next) {
      if (symbols[at].rank < best_rank) {
        best_rank = symbols[at].rank;
        best = at;
      }
    }
    if (best < 0) return;
    apply(symbols, best);
  }
}

void BpeModel::merge_long(Scratch& scratch) const {
  auto& symbols = scratch.symbols_;
  auto& heap = scratch.heap_;
  heap.clear();
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (symbols[i].rank != kNoRank) heap.push_back(uint64_t{symbols[i].rank} << 32 | i);
  }
  const auto later = std::greater<uint64_t>{};
  std::make_heap(heap.begin(), heap.end(), later);
  const auto push = [&](int32_t at) {
    if (symbols[at].rank == kNoRank) return;
    heap.push_back(uint64_t{symbols[at].rank} << 32 | static_cast<uint32_t>(at));
    std::push_heap(heap.begin(), heap.end(), later);
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const auto rank = static_cast<uint32_t>(heap.back() >> 32);
    const auto at = static_cast<int32_t>(heap.back() & 0xFFFFFFFFu);
    heap.pop_back();
    if (symbols[at].rank != rank) continue;  // the adjacent symbols have changed since
    apply(symbols, at);
    push(at);
    if (symbols[at].previous >= 0) push(symbols[at].previous);
  }
}

}  // namespace nibble
