// Conversation: what was said and how it is asked for; kept in files by `nibble chat`. No terminal,
// no model.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace nibble {

struct Conversation {
  struct Turn {
    std::string question;
    std::vector<std::string> images;  // data: URLs, shown with the question
    std::string reasoning;
    std::string answer;
  };

  std::string system;   // or empty
  std::string profile;  // or empty
  std::optional<bool> thinking;
  Json parameters = Json(Json::Object{});  // fields of a chat request
  std::vector<Turn> turns;

  /// The body of a chat request: all of it, and `question` with its images.
  Json request(std::string_view question, const std::vector<std::string>& images = {}) const;
  /// {"system", "profile", "think", "parameters", "messages": [{"role", "content", ..}]}.
  Json dump() const;
  /// Reads what dump() wrote. Errors: another form, with the member that is wrong.
  static Result<Conversation> read(const Json& json, std::string_view source);
};

/// The names that `/set parameter` takes, as people type them; thinking_budget stands for
/// thinking_token_budget.
std::span<const std::string_view> chat_parameters();
/// The request field of a parameter.
std::string_view chat_parameter_field(std::string_view parameter);

}  // namespace nibble
