// Anthropic's messages and OpenAI's responses as chat requests: the same conversation, options and
// tools under the names of /v1/chat/completions, which then validates them. Pure.
#pragma once

#include <variant>

#include "base/json.h"
#include "server/http/api_error.h"
#include "server/request/field_reader.h"

namespace nibble {

/// A chat request's body, or why there is none.
using TranslatedBody = std::variant<Json, ApiError>;

/// kept: they become parts of a chat. refused: those of a user are, and in the place of one in the
/// result of a tool stands a line of text.
enum class ImageParts : uint8_t { refused, kept };

struct TranslationOptions {
  AskedFields* asked = nullptr;  // the same as FieldReader's
  ImageParts images = ImageParts::refused;
};

/// A body of POST /v1/messages (and of count_tokens, which has no max_tokens). Thinking is off
/// unless asked for, as it is there. Blocks of types that are not known are refused; tools that
/// only Anthropic's own service has are left out. A line `x-anthropic-billing-header: ...` at the
/// start of the system prompt is dropped: it changes with every request and would keep every prompt
/// from the prefix cache.
TranslatedBody chat_of_messages(const Json& body);
TranslatedBody chat_of_messages(const Json& body, const TranslationOptions& options);

/// A body of POST /v1/responses. Nothing is stored, so previous_response_id, conversation and
/// background are refused. Tools of other types than function are left out.
TranslatedBody chat_of_responses(const Json& body);
TranslatedBody chat_of_responses(const Json& body, const TranslationOptions& options);

/// The members of a request that a response repeats, with the API's defaults for absent ones.
Json echoed_members(const Json& responses_body);

}  // namespace nibble
