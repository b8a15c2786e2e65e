// A chat's messages as its prompt: system messages joined, the last message continued where that
// is asked for, and refusals of the template that name the message. Knows no template by name.
#pragma once

#include <variant>
#include <vector>

#include "server/http/api_error.h"
#include "server/request/generation_request.h"
#include "text/chat_template.h"

namespace nibble {

/// Messages as templates take them, and where each stood in the request.
struct ChatMessages {
  Json list;
  std::vector<size_t> places;
};

/// Messages of the roles system and developer, wherever they stand, become one message of the role
/// system at the start, in their order, with a blank line between two. Templates take no other.
ChatMessages join_system_messages(Json messages);

/// The prompt of a conversation. With AnswerStart::continued it ends where the text of the last
/// message ends, white space at its end included; what else the template writes there is left out.
/// Errors: 400 that names the message which the template does not accept.
std::variant<RenderedPrompt, ApiError> render_chat(const ChatTemplate& chat_template,
                                                   const TemplateInput& input,
                                                   const std::vector<size_t>& places,
                                                   AnswerStart start);

}  // namespace nibble
