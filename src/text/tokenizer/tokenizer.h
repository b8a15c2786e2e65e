// Tokenizer: text <-> token ids, equal to Hugging Face `tokenizers` (0.23) for byte-level BPE as
// the Qwen family ships it: added tokens, NFC, a split pattern, byte level, merges. What a
// tokenizer.json asks for beyond that is refused by name at load. Not a trainer, not chat
// templates.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/text_piece.h"

namespace nibble {

/// Says if added tokens (special or not: <|im_end|>, <think>, <tool_call>) are recognised in text.
enum class SpecialTokens {
  recognised,  // text we wrote: templates, raw completion prompts of a trusted caller
  plain_text,  // text a user wrote: "<|im_end|>" is ten ordinary characters
};

/// Says if decoding leaves out tokens flagged `special` (<|im_end|>; not <think>).
enum class SkipSpecial { no, yes };

/// Immutable after load and cheap to copy; every method may be called from many threads at once.
class Tokenizer {
 public:
  /// Reads tokenizer.json of a checkpoint folder, and tokenizer_config.json if it is there (flags
  /// and extra tokens of added_tokens_decoder, eos_token). Errors: not_found, corrupt (broken or
  /// contradictory file), unsupported (named part of the pipeline this program does not do).
  static Result<Tokenizer> load(const std::filesystem::path& folder);

  /// The same from memory; `config_json` may be empty. `source` names the file in errors.
  static Result<Tokenizer> parse(std::string_view tokenizer_json, std::string_view config_json,
                                 std::string_view source);

  /// Token ids of `text`, nothing added: Hugging Face encode(text, add_special_tokens=False).
  /// Invalid UTF-8 is read as Python's decode(errors="replace") reads it. Time grows as n log n.
  /// Errors: only for foreign split patterns that exhaust the regex engine on this text
  /// (unsupported); a tokenizer with a Qwen pattern never fails.
  Result<std::vector<int32_t>> encode(std::string_view text, SpecialTokens policy) const;

  /// The pieces joined and tokenised as one string, except that an added token is recognised only
  /// where every byte of its match comes from template pieces (neighbouring template pieces count
  /// as one). All-template input equals encode(joined, recognised); all-user, plain_text.
  Result<std::vector<int32_t>> encode(std::span<const TextPiece> pieces) const;

  /// Text of `ids`; ids without a token are left out. Always valid UTF-8: each maximal invalid
  /// sequence becomes U+FFFD, as in Hugging Face decode. Streams use text/tokenizer/detokenizer.h.
  std::string decode(std::span<const int32_t> ids, SkipSpecial skip) const;

  /// The id of a token by its text in tokenizer.json ("<|im_end|>", "Ġthe"), if there is one.
  std::optional<int32_t> token_to_id(std::string_view token) const;

  /// The bytes a token stands for in output, not always valid UTF-8; nothing if there is no such
  /// token. Lives as long as any copy of this tokenizer.
  std::optional<std::string_view> id_to_token_bytes(int32_t id) const;

  /// Largest id + 1. There may be holes below, and a checkpoint's embedding may have more rows:
  /// ask exists().
  int32_t vocab_size() const;
  bool exists(int32_t id) const;
  /// Flagged `special` in the files: left out by SkipSpecial::yes.
  bool is_special(int32_t id) const;
  /// In the added-token list, special or not. A special one never comes from user text; a file may
  /// list an ordinary word too, which then does.
  bool is_added(int32_t id) const;

  /// eos_token of tokenizer_config.json, if it names a token. One of several sources of stop ids.
  std::optional<int32_t> eos_token_id() const;

 private:
  struct State;
  explicit Tokenizer(std::shared_ptr<const State> state);
  std::shared_ptr<const State> state_;
};

}  // namespace nibble
