// Routes that need the tokenizer and the template but no engine: counting, tokenizing, rendering.
// Pure functions of body and model; they may take long for long texts, so call them off the io
// thread.
#pragma once

#include <functional>
#include <string_view>

#include "server/http/http.h"
#include "server/request/generation_request.h"

namespace nibble {

using TextRoute = std::function<HttpResponse(std::string_view body, const ServedModel& model,
                                             const RequestLimits& limits)>;

/// The function of a path, or an empty one:
///   /v1/messages/count_tokens, /v1/responses/input_tokens   prompt tokens of such a request
///   /tokenize        {"prompt"} or {"messages", ...} -> {"count","max_model_len","tokens",
///                    "token_strs"}; llama.cpp's {"content"} too
///   /detokenize      {"tokens"} -> {"prompt","content"}
///   /apply-template  a chat request -> {"prompt","count"}
TextRoute text_route(std::string_view path);

/// GET /tokenizer_info.
HttpResponse tokenizer_info(const ServedModel& model);

}  // namespace nibble
