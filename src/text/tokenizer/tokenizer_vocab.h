// TokenizerVocab: token id <-> token text as tokenizer.json spells it <-> bytes it stands for. Also
// the byte-level alphabet (every byte as a printable character, from GPT-2). Knows no merges.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nibble {

/// The character that spells each byte in a byte-level vocabulary: printable Latin-1 as itself, the
/// 68 others as U+0100.. in order.
const std::array<char32_t, 256>& byte_level_alphabet();

/// `bytes` spelled in that alphabet, UTF-8.
std::string byte_level_text(std::string_view bytes);

class TokenizerVocab {
 public:
  static constexpr int32_t kIdEnd = 1 << 21;           // ids are below: 2,097,152
  static constexpr size_t kTokenBytesMax = 64 * 1024;  // of one token's text

  explicit TokenizerVocab(size_t tokens_expected);

  /// Errors: corrupt, when the id is out of range or taken, the text is empty, too long or taken.
  Result<void> add(int64_t id, std::string_view text);

  /// Makes `id` (which exists) decode as if its text were `text`.
  void set_output(int32_t id, std::string_view text);

  std::optional<int32_t> find(std::string_view text) const;
  /// Largest id + 1.
  int32_t id_end() const { return static_cast<int32_t>(entries_.size()); }
  bool has(int32_t id) const { return id >= 0 && id < id_end() && entries_[id].length > 0; }
  /// For ids that exist. Views live as long as the vocabulary and until the next add().
  std::string_view text(int32_t id) const;
  /// The bytes that the token decodes to: its characters as bytes if all are of the alphabet, else
  /// its text.
  std::string_view bytes(int32_t id) const;

 private:
  struct Entry {
    uint32_t text_at = 0, length = 0;  // length 0: no such token
    uint32_t bytes_at = 0, byte_count = 0;
  };
  struct Slot {
    uint32_t hash = 0;  // of the text: most mismatches end here
    int32_t id = -1;    // -1: empty
  };
  static uint32_t hash_of(std::string_view text);
  size_t slot_of(std::string_view text, uint32_t hash) const;
  void grow();

  std::vector<Entry> entries_;  // by id
  std::string texts_, bytes_;
  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
  size_t count_ = 0;
};

}  // namespace nibble
