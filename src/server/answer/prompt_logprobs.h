// Log-probabilities of prompt tokens as answers show them: gathered from the engine's messages,
// then as vLLM's `prompt_logprobs` or as the head of a completion's `logprobs` under `echo`.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/json.h"
#include "engine/messages.h"
#include "server/answer/response_json.h"
#include "text/tokenizer/tokenizer.h"

namespace nibble {

/// [null, {"ID": {"logprob", "rank", "decoded_token"}, ...}, ...]: one entry per prompt token, each
/// with the token itself and the best. `positions` [prompt tokens - 1].
Json prompt_logprobs_json(const Tokenizer& tokenizer, std::span<const PositionLogprobs> positions);

/// {tokens, token_logprobs, top_logprobs, text_offset} of a prompt; the first token has nulls.
/// `text_offset` goes on from its value.
Json echo_logprobs(const TokenNames& names, int32_t first_token,
                   std::span<const PositionLogprobs> positions, size_t& text_offset);

/// Appends the lists of `more` to those of `logprobs`, both of a completion.
void append_logprobs(Json& logprobs, const Json& more);

}  // namespace nibble
