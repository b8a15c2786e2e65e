// The set-up of clients for a server: for each, the lines of its own configuration.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace nibble {

struct ServerFacts {
  std::string url;      // "http://127.0.0.1:8000": no slash at its end, no /v1
  std::string model;    // the name to ask for
  std::string api_key;  // any word does where the server wants none
  std::optional<int64_t> context_tokens;
  bool images = false;  // the model takes them
};

struct ClientRecipe {
  std::string_view name;   // "codex"
  std::string_view title;  // "Codex CLI"
  /// Writes what to do with which lines, ready to be pasted.
  std::string (*write)(const ServerFacts& facts);
};
std::span<const ClientRecipe> client_recipes();

}  // namespace nibble
