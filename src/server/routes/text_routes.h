// Routes that need the tokenizer and the template but no engine: counting, tokenizing, rendering.
// Pure functions of API, body and model; they may take long for long texts, so call them off the io
// thread, as answer_text() does.
#pragma once

#include <string_view>

#include "server/http/http.h"
#include "server/request/generation_request.h"

namespace nibble {

using TextAnswer = HttpResponse (*)(Api api, std::string_view body, const ServedModel& model,
                                    const RequestLimits& limits);

/// A request of `api` -> the number of its prompt's tokens.
HttpResponse count_tokens(Api api, std::string_view body, const ServedModel& model,
                          const RequestLimits& limits);
/// {"prompt"} or {"messages", ...} -> {"count","max_model_len","tokens","token_strs"}; llama.cpp's
/// {"content"} too. The body tells if it is a chat.
HttpResponse tokenize(Api, std::string_view body, const ServedModel& model,
                      const RequestLimits& limits);
/// {"tokens"} -> {"prompt","content"}.
HttpResponse detokenize(Api, std::string_view body, const ServedModel& model,
                        const RequestLimits& limits);
/// A chat request -> {"prompt","count"}. The prompt has one token for each image, as the template
/// writes it; the count is of all that the model is given.
HttpResponse apply_template(Api, std::string_view body, const ServedModel& model,
                            const RequestLimits& limits);

/// GET /tokenizer_info.
HttpResponse tokenizer_info(const ServedModel& model);

}  // namespace nibble
