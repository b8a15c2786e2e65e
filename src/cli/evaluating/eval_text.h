// `nibble eval perplexity` and `nibble eval kl`: the scoring of `nibble score`, on text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "cli/verb.h"

namespace nibble {

/// eval perplexity DIR TEXT...: plain files, or JSONL lines with "text".
Result<int> eval_perplexity(const Arguments& arguments, Terminal& terminal);

/// eval kl DIR TEXT... --against DIR2|LOGITS: also the divergence from another checkpoint, or from
/// stored logits.
Result<int> eval_kl(const Arguments& arguments, Terminal& terminal);

/// The texts of the positionals from `first` on, by the tokenizer of `folder`, as pieces of at most
/// --sequence-tokens and --max-tokens in all; a piece of one token predicts nothing and is left
/// out. Errors: those of the files; invalid_argument for fewer than two tokens.
Result<std::vector<std::vector<int32_t>>> text_sequences(const Arguments& arguments,
                                                         const std::filesystem::path& folder,
                                                         int first);

}  // namespace nibble
