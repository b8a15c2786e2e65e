// Routes that need the tokenizer and the template but no engine: counting, tokenizing, rendering.
// Pure functions of API, body and model, in two steps, since images may have to be fetched between
// them; both may take long for long texts, so call them off the io thread, as answer_text() does.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "server/http/http.h"
#include "server/request/generation_request.h"

namespace nibble {

/// The first prompt of a request and where its images and videos are in it.
struct TextPrompt {
  std::vector<int32_t> ids;
  std::vector<MediaPlace> media;
};

/// The first step's outcome: a request whose prompt is still to be made, or the answer.
struct OpenedText {
  std::optional<OpenedRequest> request;
  std::function<HttpResponse(const TextPrompt& prompt, const ServedModel& model)> answer;
  HttpResponse response;  // without a request
  bool has_media() const { return request && request->has_media(); }
  bool has_videos() const { return request && request->has_videos(); }
};
using OpenText = OpenedText (*)(Api api, std::string_view body, const ServedModel& model,
                                const RequestLimits& limits);

/// The second step. Images are fetched where they are addresses but not decoded: their headers say
/// how many tokens they are. Videos are decoded: only then is it certain.
HttpResponse finish_text(OpenedText opened, const ServedModel& model, const RequestLimits& limits);

/// A request of `api` -> the number of its prompt's tokens.
OpenedText count_tokens(Api api, std::string_view body, const ServedModel& model,
                        const RequestLimits& limits);
/// {"prompt"} or {"messages", ...} -> {"count","max_model_len","tokens","token_strs"}; llama.cpp's
/// {"content"} too. The body tells if it is a chat.
OpenedText tokenize(Api, std::string_view body, const ServedModel& model,
                    const RequestLimits& limits);
/// {"tokens"} -> {"prompt","content"}.
OpenedText detokenize(Api, std::string_view body, const ServedModel& model,
                      const RequestLimits& limits);
/// A chat request -> {"prompt","count"}. The prompt has images and videos as the template writes
/// them; the count is of all that the model is given.
OpenedText apply_template(Api, std::string_view body, const ServedModel& model,
                          const RequestLimits& limits);

/// GET /tokenizer_info.
HttpResponse tokenizer_info(const ServedModel& model);

}  // namespace nibble
