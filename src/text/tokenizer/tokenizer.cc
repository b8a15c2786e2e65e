// The pipeline: make valid, find added tokens, normalize, find added tokens that want normalized
// text, cut into words, merge. Origins of bytes are kept as ranges of trusted (template) text.
#include "text/tokenizer/tokenizer.h"

#include <algorithm>
#include <limits>

#include "base/file.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/tokenizer_added.h"
#include "text/tokenizer/tokenizer_loader.h"
#include "text/tokenizer/tokenizer_nfc.h"
#include "text/tokenizer/tokenizer_utf8.h"
#include "text/tokenizer/tokenizer_vocab.h"

namespace nibble {

namespace {

constexpr uint64_t kFileBytesMax = uint64_t{128} << 20;
constexpr size_t kTextBytesMax = std::numeric_limits<int32_t>::max();

using Ranges = std::vector<ByteRange>;

enum TokenFlag : uint8_t { kAdded = 1, kSpecial = 2 };

void append_range(Ranges& ranges, ByteRange range) {
  if (range.begin == range.end) return;
  if (!ranges.empty() && ranges.back().end == range.begin) {
    ranges.back().end = range.end;
  } else {
    ranges.push_back(range);
  }
}

/// The parts of `ranges` inside `window`, counted from its beginning.
Ranges ranges_within(const Ranges& ranges, ByteRange window) {
  Ranges inside;
  auto at = std::ranges::upper_bound(ranges, window.begin, {}, &ByteRange::end);
  for (; at != ranges.end() && at->begin < window.end; ++at) {
    inside.push_back({std::max(at->begin, window.begin) - window.begin,
                      std::min(at->end, window.end) - window.begin});
  }
  return inside;
}

/// Moves `at` forward to a place where text can be cut for normalization.
size_t next_boundary(std::string_view text, size_t at) {
  while (nfc_boundary(text, at) == NfcBoundary::no) at += decode_utf8(text, at).bytes;
  return at;
}

/// NFC of `text`; `trusted` follows. What combines across the edge of a trusted range is not
/// trusted.
std::string normalize_with_origin(std::string_view text, Ranges& trusted) {
  std::string out;
  Ranges kept;
  size_t at = 0;
  for (const ByteRange& range : trusted) {
    const size_t begin = next_boundary(text, range.begin);
    size_t end = range.end;
    while (end > begin && nfc_boundary(text, end) == NfcBoundary::no) {
      end = last_utf8_start(text.substr(0, end));
    }
    if (end <= begin) continue;
    out += normalize_nfc(text.substr(at, begin - at));
    const size_t out_begin = out.size();
    out += normalize_nfc(text.substr(begin, end - begin));
    append_range(kept, {out_begin, out.size()});
    at = end;
  }
  out += normalize_nfc(text.substr(at));
  trusted = std::move(kept);
  return out;
}

}  // namespace

struct Tokenizer::State {
  TokenizerVocab vocab;
  BpeModel model;
  PreTokenizer pre_tokenizer;
  Normalizer normalizer;
  IgnoreMerges ignore_merges;
  AddedTokenMatcher raw_tokens, normalized_tokens;
  std::vector<uint8_t> flags;  // TokenFlags by id
  std::optional<int32_t> eos_token_id;

  Result<std::vector<int32_t>> encode(std::string_view text, const Ranges& trusted) const;
  Result<void> encode_stretch(std::string_view text, Ranges trusted, BpeModel::Scratch& scratch,
                              std::vector<int32_t>& ids) const;
  void encode_word(std::string_view word, BpeModel::Scratch& scratch,
                   std::vector<int32_t>& ids) const;
};

Tokenizer::Tokenizer(std::shared_ptr<const State> state) : state_(std::move(state)) {}

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& folder) {
  const auto path = folder / "tokenizer.json";
  auto text = read_text_file(path, kFileBytesMax);
  if (!text.ok() && text.error().code == ErrorCode::not_found) {
    return make_error(ErrorCode::not_found,
                      {.what = "missing tokenizer",
                       .expected = path.string(),
                       .found = "no such file",
                       .advice = "copy tokenizer.json from the model this checkpoint was made of"});
  }
  const std::string tokenizer_json = TRY(std::move(text));
  auto config = read_text_file(folder / "tokenizer_config.json", kFileBytesMax);
  if (!config.ok() && config.error().code == ErrorCode::not_found) config = std::string();
  return parse(tokenizer_json, TRY(std::move(config)), path.string());
}

Result<Tokenizer> Tokenizer::parse(std::string_view tokenizer_json, std::string_view config_json,
                                   std::string_view source) {
  TokenizerParts parts = TRY(parse_tokenizer_files(tokenizer_json, config_json, source));
  auto pre_tokenizer = PreTokenizer::make(parts.split_patterns);
  if (!pre_tokenizer.ok()) {
    return Error{pre_tokenizer.error().code, concat(source, ": ", pre_tokenizer.error().message)};
  }
  auto state = std::make_shared<State>(State{.vocab = std::move(parts.vocab),
                                             .model = BpeModel(parts.byte_ids, parts.merges),
                                             .pre_tokenizer = std::move(pre_tokenizer).value(),
                                             .normalizer = parts.normalizer,
                                             .ignore_merges = parts.ignore_merges,
                                             .raw_tokens = {},
                                             .normalized_tokens = {},
                                             .flags = {},
                                             .eos_token_id = parts.eos_token_id});
  state->flags.resize(static_cast<size_t>(state->vocab.id_end()));
  for (AddedToken& token : parts.added) {
    state->flags[token.id] = static_cast<uint8_t>(kAdded | (token.special ? kSpecial : 0));
    if (token.normalized && parts.normalizer == Normalizer::nfc) {
      token.content = normalize_nfc(token.content);
      state->vocab.set_output(token.id, token.content);
    }
    (token.normalized ? state->normalized_tokens : state->raw_tokens).add(token);
  }
  return Tokenizer(std::move(state));
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, SpecialTokens policy) const {
  std::string mended;
  if (valid_utf8_prefix(text) != text.size()) {
    append_lossy_utf8(mended, text, Utf8End::replace);
    text = mended;
  }
  Ranges trusted;
  if (policy == SpecialTokens::recognised) append_range(trusted, {0, text.size()});
  return state_->encode(text, trusted);
}

Result<std::vector<int32_t>> Tokenizer::encode(std::span<const TextPiece> pieces) const {
  std::string text;
  Ranges trusted;
  for (const TextPiece& piece : pieces) {
    const size_t begin = text.size();
    append_lossy_utf8(text, piece.text, Utf8End::replace);
    if (piece.origin == Origin::from_template) append_range(trusted, {begin, text.size()});
  }
  return state_->encode(text, trusted);
}

Result<std::vector<int32_t>> Tokenizer::State::encode(std::string_view text,
                                                      const Ranges& trusted) const {
  if (text.size() > kTextBytesMax) {
    return make_error(ErrorCode::invalid_argument,
                      {.what = "text to tokenize",
                       .expected = concat("at most ", kTextBytesMax, " bytes"),
                       .found = concat(text.size())});
  }
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 8);
  BpeModel::Scratch scratch(text.size());
  for (const AddedTokenSpan& span : raw_tokens.split(text, trusted)) {
    if (span.id >= 0) {
      ids.push_back(span.id);
      continue;
    }
    const auto [begin, end] = span.range;
    // Origins are asked for again only by tokens that want normalized text.
    Ranges inside = normalized_tokens.empty() ? Ranges{} : ranges_within(trusted, span.range);
    TRY(encode_stretch(text.substr(begin, end - begin), std::move(inside), scratch, ids));
  }
  return ids;
}

Result<void> Tokenizer::State::encode_stretch(std::string_view text, Ranges trusted,
                                              BpeModel::Scratch& scratch,
                                              std::vector<int32_t>& ids) const {
  std::string normal;
  if (normalizer == Normalizer::nfc && find_nfc_active(text) != text.size()) {
    normal = trusted.empty() ? normalize_nfc(text) : normalize_with_origin(text, trusted);
    text = normal;
  }
  for (const AddedTokenSpan& span : normalized_tokens.split(text, trusted)) {
    if (span.id >= 0) {
      ids.push_back(span.id);
      continue;
    }
    TRY(pre_tokenizer.split(text.substr(span.range.begin, span.range.end - span.range.begin),
                            [&](std::string_view word) { encode_word(word, scratch, ids); }));
  }
  return {};
}

void Tokenizer::State::encode_word(std::string_view word, BpeModel::Scratch& scratch,
                                   std::vector<int32_t>& ids) const {
  if (ignore_merges == IgnoreMerges::yes && word.size() <= TokenizerVocab::kTokenBytesMax) {
    const auto whole = vocab.find(byte_level_text(word));
    if (whole && (flags[*whole] & kSpecial) == 0) {
      ids.push_back(*whole);
      return;
    }
  }
  model.encode(word, scratch, ids);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, SkipSpecial skip) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (!exists(id) || (skip == SkipSpecial::yes && is_special(id))) continue;
    bytes += state_->vocab.bytes(id);
  }
  if (valid_utf8_prefix(bytes) == bytes.size()) return bytes;
  std::string text;
  append_lossy_utf8(text, bytes, Utf8End::replace);
  return text;
}

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  return state_->vocab.find(token);
}

std::optional<std::string_view> Tokenizer::id_to_token_bytes(int32_t id) const {
  if (!exists(id)) return std::nullopt;
  return state_->vocab.bytes(id);
}

int32_t Tokenizer::vocab_size() const { return state_->vocab.id_end(); }
bool Tokenizer::exists(int32_t id) const { return state_->vocab.has(id); }
bool Tokenizer::is_special(int32_t id) const {
  return exists(id) && (state_->flags[id] & kSpecial) != 0;
}
bool Tokenizer::is_added(int32_t id) const {
  return exists(id) && (state_->flags[id] & kAdded) != 0;
}
std::optional<int32_t> Tokenizer::eos_token_id() const { return state_->eos_token_id; }

}  // namespace nibble
