// Token texts lie in one string, their bytes in another; a hash table of ids finds them.
#include "text/tokenizer/tokenizer_vocab.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/utf8.h"
#include "text/tokenizer/tokenizer_utf8.h"

namespace nibble {

namespace {

std::array<char32_t, 256> make_alphabet() {
  std::array<char32_t, 256> alphabet{};
  char32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    alphabet[byte] = printable ? byte : next++;
  }
  return alphabet;
}

/// The byte each character below 0x144 spells, or -1.
std::array<int16_t, 0x144> make_reverse_alphabet() {
  std::array<int16_t, 0x144> reverse;
  reverse.fill(-1);
  for (int16_t byte = 0; byte < 256; ++byte) reverse[byte_level_alphabet()[byte]] = byte;
  return reverse;
}

void append_token_bytes(std::string& out, std::string_view text) {
  static const auto reverse = make_reverse_alphabet();
  const size_t before = out.size();
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (c.code >= reverse.size() || reverse[c.code] < 0) {
      out.resize(before);
      out.append(text);
      return;
    }
    out.push_back(static_cast<char>(reverse[c.code]));
    at += c.bytes;
  }
}

}  // namespace

const std::array<char32_t, 256>& byte_level_alphabet() {
  static const auto alphabet = make_alphabet();
  return alphabet;
}

std::string byte_level_text(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) append_utf8(out, byte_level_alphabet()[static_cast<unsigned char>(c)]);
  return out;
}

TokenizerVocab::TokenizerVocab(size_t tokens_expected)
    : slots_(std::bit_ceil(2 * std::min<size_t>(tokens_expected, kIdEnd) + 2)) {}

uint32_t TokenizerVocab::hash_of(std::string_view text) {
  return static_cast<uint32_t>(std::hash<std::string_view>{}(text));
}

/// The slot that holds `text`, or the empty one where it would go.
size_t TokenizerVocab::slot_of(std::string_view text, uint32_t hash) const {
  size_t at = hash & (slots_.size() - 1);
  while (slots_[at].id >= 0 && (slots_[at].hash != hash || this->text(slots_[at].id) != text)) {
    at = (at + 1) & (slots_.size() - 1);
  }
  return at;
}

void TokenizerVocab::grow() {
  std::vector<Slot> old(2 * slots_.size());
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.id >= 0) slots_[slot_of(text(slot.id), slot.hash)] = slot;
  }
}

Result<void> TokenizerVocab::add(int64_t id, std::string_view text) {
  if (id < 0 || id >= kIdEnd) {
    return make_error(ErrorCode::corrupt, {.what = concat("id of token ", quoted_excerpt(text)),
                                           .expected = concat("0 to ", kIdEnd - 1),
                                           .found = concat(id)});
  }
  if (text.empty() || text.size() > kTokenBytesMax) {
    return make_error(ErrorCode::corrupt, {.what = concat("text of token ", id),
                                           .expected = concat("1 to ", kTokenBytesMax, " bytes"),
                                           .found = concat(text.size())});
  }
  const auto token = static_cast<int32_t>(id);
  if (has(token)) {
    return make_error(ErrorCode::corrupt, {.what = concat("token id ", id, " is used twice, by ",
                                                          quoted_excerpt(this->text(token)),
                                                          " and ", quoted_excerpt(text))});
  }
  const uint32_t hash = hash_of(text);
  Slot& slot = slots_[slot_of(text, hash)];
  if (slot.id >= 0) {
    return make_error(ErrorCode::corrupt, {.what = concat("token ", quoted_excerpt(text),
                                                          " has two ids, ", slot.id, " and ", id)});
  }
  if (token >= id_end()) entries_.resize(static_cast<size_t>(token) + 1);
  Entry& entry = entries_[token];
  entry.text_at = static_cast<uint32_t>(texts_.size());
  entry.length = static_cast<uint32_t>(text.size());
  texts_.append(text);
  set_output(token, text);
  slot = {hash, token};
  if (2 * ++count_ > slots_.size()) grow();
  return {};
}

void TokenizerVocab::set_output(int32_t id, std::string_view text) {
  Entry& entry = entries_[id];
  entry.bytes_at = static_cast<uint32_t>(bytes_.size());
  append_token_bytes(bytes_, text);
  entry.byte_count = static_cast<uint32_t>(bytes_.size() - entry.bytes_at);
}

std::optional<int32_t> TokenizerVocab::find(std::string_view text) const {
  const int32_t id = slots_[slot_of(text, hash_of(text))].id;
  return id >= 0 ? std::optional(id) : std::nullopt;
}

std::string_view TokenizerVocab::text(int32_t id) const {
  CHECK(has(id), "no token ", id);
  return std::string_view(texts_).substr(entries_[id].text_at, entries_[id].length);
}

std::string_view TokenizerVocab::bytes(int32_t id) const {
  CHECK(has(id), "no token ", id);
  return std::string_view(bytes_).substr(entries_[id].bytes_at, entries_[id].byte_count);
}

}  // namespace nibble
