// Token maps: the tokens that a head for drafts has rows for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/config/config.h"

namespace nibble {

/// A token map as it was asked for; what it means depends on the model.
struct TokenMap {
  int64_t count = 0;        // so many tokens, by first_tokens(); 0: the ids in `text`
  std::string text = {};    // the contents of a file
  std::string source = {};  // its name, for messages
};

/// The tokens, in rising order; none if they are all of the vocabulary. Errors: those of the two
/// functions below.
Result<std::vector<int32_t>> tokens_of(const TokenMap& map, const ModelConfig& config);

/// The ids in the text of a token map, sorted, each once. `source` is for messages. Errors:
/// invalid_argument for what is no id below `vocab_rows`, and for none at all.
Result<std::vector<int32_t>> parse_token_map(std::string_view text, std::string_view source,
                                             int32_t vocab_rows);

/// The `count` rows of a head for drafts: the special tokens (the stop tokens and, where they end
/// the vocabulary, those from the first of them on), and of the others those with the smallest ids.
/// Errors: invalid_argument if there is no room for another, or if there are not so many.
Result<std::vector<int32_t>> first_tokens(const ModelConfig& config, int64_t count);

}  // namespace nibble
