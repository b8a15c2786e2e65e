// The names that the readers ask for, and a table of those that are ignored.
#include "server/request/known_fields.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/edit_distance.h"
#include "server/request/field_reader.h"

namespace nibble {

namespace {

using Names = std::vector<std::string>;

// Fields that clients send and nothing here obeys, in the order of Api. A Response repeats some.
constexpr std::string_view kIgnoredInChats[] = {
    "user",       "store",     "metadata",         "prompt_cache_key", "prompt_cache_retention",
    "request_id", "verbosity", "safety_identifier"};
constexpr std::string_view kIgnoredInCompletions[] = {"user",
                                                      "store",
                                                      "metadata",
                                                      "prompt_cache_key",
                                                      "prompt_cache_retention",
                                                      "request_id",
                                                      "top_logprobs",
                                                      "enable_thinking",
                                                      "reasoning_effort",
                                                      "chat_template_kwargs",
                                                      "safety_identifier"};
constexpr std::string_view kIgnoredInMessages[] = {"metadata", "service_tier", "context_management",
                                                   "container", "mcp_servers"};
constexpr std::string_view kIgnoredInResponses[] = {
    "user",           "metadata",       "prompt_cache_key", "prompt_cache_retention",
    "max_tool_calls", "stream_options", "truncation",       "safety_identifier"};
constexpr std::span<const std::string_view> kIgnored[] = {kIgnoredInChats, kIgnoredInCompletions,
                                                          kIgnoredInMessages, kIgnoredInResponses};

Names names_of(Api api) {
  AskedFields names = fields_asked(api);
  for (const std::string_view name : kIgnored[static_cast<size_t>(api)]) names.emplace(name);
  return {names.begin(), names.end()};
}

}  // namespace

std::span<const std::string> known_fields(Api api) {
  static const std::array<Names, 4> names = {names_of(Api::chat), names_of(Api::completions),
                                             names_of(Api::messages), names_of(Api::responses)};
  return names.at(static_cast<size_t>(api));
}

std::optional<ApiError> unknown_field(Api api, const Json& body) {
  constexpr size_t kNameBytesMax = 64;  // beyond, nothing is near
  const auto known = known_fields(api);
  for (const Json::Member& member : body.as_object()) {
    const std::string& name = member.key;
    if (std::ranges::binary_search(known, name)) continue;
    std::string advice = "leave it out";
    if (name.size() <= kNameBytesMax)
      advice = concat("the nearest is ",
                      *std::ranges::min_element(known, {}, [&](const std::string& other) {
                        return edit_distance(name, other);
                      }));
    return ApiError::field(name.size() <= kNameBytesMax ? name : "",
                           {.what = "an unknown field",
                            .expected = "one that this server knows",
                            .found = shown(Json(name)),
                            .advice = advice});
  }
  return std::nullopt;
}

}  // namespace nibble
