// Finds where a chat prompt is worth remembering: token positions that a later request is likely to
// share, found by rendering the conversation in other ways and comparing. Knows no template by
// name.
#pragma once

#include <optional>
#include <span>

#include "engine/sequence.h"
#include "text/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace nibble {

/// The last `cache_control` mark of a request.
struct CacheMark {
  size_t message = 0;          // index; the mark is at its end
  std::optional<size_t> part;  // or after this part of its content
};
std::optional<CacheMark> find_cache_mark(const Json& messages);
/// Takes `cache_control` out of tools, so that a mark does not change the prompt. Whether one was.
bool strip_cache_marks(Json& tools);

enum class ToolsMarked : uint8_t { no, yes };

/// Boundaries and pinned_tokens for `prompt`, which is `input` rendered and tokenised: the end of
/// system prompt and tools; how far the next turn will agree, with this turn's thinking dropped;
/// in a loop of tools also where the answer begins. Token counts, each at most the tokens that the
/// other rendering certainly shares. What cannot be rendered has no place.
CacheRequest find_cache_places(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                               const TemplateInput& input, std::span<const TextPiece> pieces,
                               std::span<const int32_t> prompt, ToolsMarked tools_marked);

}  // namespace nibble
