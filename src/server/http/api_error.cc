// Errors as JSON and as HTTP answers.
#include "server/http/api_error.h"

#include <utility>

#include "text/tokenizer/tokenizer_utf8.h"

namespace nibble {

std::string shown(const Json& value) {
  constexpr size_t kShownMax = 100;
  std::string text = value.is_array() || value.is_object() ? value.type_name() : value.dump();
  if (text.size() <= kShownMax) return text;
  size_t end = kShownMax;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end) + "...";
}

Json message_json(std::string_view message) {
  std::string text;
  append_lossy_utf8(text, message, Utf8End::replace);
  return Json(std::move(text));
}

Json ApiError::json() const {
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? Json() : Json(text);
  };
  return json_object({{"error", json_object({{"message", message_json(message)},
                                             {"type", Json(type)},
                                             {"param", text_or_null(param)},
                                             {"code", text_or_null(code)}})}});
}

HttpResponse ApiError::response() const {
  HttpResponse response{.status = status, .body = json().dump()};
  if (status == 429 || status == 503)
    response.headers.push_back({"Retry-After", concat(retry_after_s)});
  if (status == 401) response.headers.push_back({"WWW-Authenticate", "Bearer"});
  return response;
}

ApiError ApiError::from(const Error& error) {
  switch (error.code) {
    case ErrorCode::no_space:
      return {.status = 429, .type = "overloaded", .message = error.message, .code = "overloaded"};
    case ErrorCode::cancelled:
      return {.status = 503, .type = "service_unavailable", .message = error.message};
    case ErrorCode::internal:
    case ErrorCode::corrupt:
      return {.status = 500, .type = "server_error", .message = error.message};
    default:
      return {.message = error.message};
  }
}

ApiError ApiError::field(std::string_view name, const ErrorParts& parts) {
  return {.message = make_error(ErrorCode::invalid_argument, parts).message,
          .param = std::string(name)};
}

}  // namespace nibble
