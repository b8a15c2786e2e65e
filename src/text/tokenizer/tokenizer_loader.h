// tokenizer.json and tokenizer_config.json become checked parts of a tokenizer. The only place that
// knows these file formats, as transformers 4 and 5 write them. Every fault is one line that names
// the part.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/tokenizer_added.h"
#include "text/tokenizer/tokenizer_vocab.h"

namespace nibble {

enum class Normalizer { none, nfc };
enum class IgnoreMerges { no, yes };  // yes: a word that is a token as a whole is not taken apart

struct TokenizerParts {
  TokenizerVocab vocab{0};  // added tokens included
  std::array<int32_t, 256> byte_ids{};
  std::vector<BpeMerge> merges;  // in rank order
  IgnoreMerges ignore_merges = IgnoreMerges::no;
  Normalizer normalizer = Normalizer::none;
  std::vector<std::string> split_patterns;
  std::vector<AddedToken> added;
  std::optional<int32_t> eos_token_id;
};

/// `config_json` may be empty. Errors: corrupt, unsupported, each starting with the file's name.
Result<TokenizerParts> parse_tokenizer_files(std::string_view tokenizer_json,
                                             std::string_view config_json, std::string_view source);

}  // namespace nibble
