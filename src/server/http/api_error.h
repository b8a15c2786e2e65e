// ApiError: what a client gets instead of an answer, in the OpenAI shape.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "server/http/http.h"

namespace nibble {

struct ApiError {
  int status = 400;
  std::string type = "invalid_request_error";
  std::string message;
  std::string param;      // the request field, or empty
  std::string code;       // a word for programs, or empty
  int retry_after_s = 1;  // for status 429 and 503
  Json details = {};      // details for programs, in Anthropic's format alone

  /// {"error":{"message","type","param","code"}}.
  Json json() const;
  HttpResponse response() const;

  /// The engine's or the template's refusal of a request: no_space is 429, cancelled 503, internal
  /// and corrupt 500, the rest 400.
  static ApiError from(const Error& error);
  /// 400 with a field name.
  static ApiError field(std::string_view name, const ErrorParts& parts);
};

/// A value as an error message shows it: at most 100 bytes of its JSON; of lists and objects, that
/// they are such.
std::string shown(const Json& value);

/// A message as JSON: what it quotes that is not UTF-8 becomes U+FFFD.
Json message_json(std::string_view message);

}  // namespace nibble
