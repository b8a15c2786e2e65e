// Tests of requests with images or videos have here the parts of a chat, and what becomes of its
// body: a request, or a refusal of one line.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <variant>

#include "server/request/generation_request.h"
#include "server/testing/test_images.h"

namespace nibble::testing {

/// model_with_images() with its usual options.
inline const ServedModel& media_model() {
  static const ServedModel served = model_with_images();
  return served;
}

inline std::string text_part(std::string_view text) {
  return concat(R"({"type":"text","text":")", text, "\"}");
}

/// A chat of one message with these parts; `fields` go behind it, each with a comma before it.
inline std::string chat(const std::string& parts, const std::string& fields = "") {
  return concat(R"({"messages":[{"role":"user","content":[)", parts, "]}]", fields, "}");
}

inline GenerationRequest accept(Api api, const std::string& body,
                                const ServedModel& served = media_model()) {
  auto parsed = parse_generation_request(api, body, served);
  if (auto* error = std::get_if<ApiError>(&parsed)) {
    ADD_FAILURE() << body.substr(0, 300) << ": " << error->message;
    return {};
  }
  return std::move(std::get<GenerationRequest>(parsed));
}

/// The message of a refusal; empty: it is none.
inline std::string refusal(Api api, const std::string& body,
                           const ServedModel& served = media_model(), int status = 400) {
  const auto parsed = parse_generation_request(api, body, served);
  const auto* error = std::get_if<ApiError>(&parsed);
  if (error == nullptr) return "";
  EXPECT_EQ(error->status, status) << error->message;
  EXPECT_EQ(error->message.find('\n'), std::string::npos) << error->message;
  EXPECT_LT(error->message.size(), 400U) << error->message;
  EXPECT_EQ(error->message.find("iVBOR"), std::string::npos) << error->message;
  return error->message;
}

}  // namespace nibble::testing
