// Refusals by a key's rules.
#include "server/clients/permissions.h"

#include <algorithm>

namespace nibble {

namespace {

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += concat(text.empty() ? "" : ", ", name);
  return text;
}

ApiError permission_error(std::string_view param, const ErrorParts& parts) {
  ApiError error = ApiError::field(param, parts);
  error.status = 403;
  error.type = "permission_error";
  error.code = "permission_denied";
  return error;
}

}  // namespace

Permission may_use(const KeyRules& key, std::string_view profile) {
  const bool listed =
      key.profiles.empty() || std::ranges::find(key.profiles, profile) != key.profiles.end();
  return listed ? Permission::granted : Permission::denied;
}

std::optional<ApiError> forbidden(const KeyRules& key, GenerationRequest& request) {
  if (may_use(key, request.profile) == Permission::denied)
    return permission_error("model", {.what = concat("profile for the key ", key.name),
                                      .expected = concat("one of ", joined(key.profiles)),
                                      .found = request.profile.empty() ? "none" : request.profile});
  if (request.priority == 0)
    request.priority = std::clamp(0, key.priority_least, key.priority_most);
  if (request.priority < key.priority_least || request.priority > key.priority_most)
    return permission_error("priority",
                            {.what = concat("priority for the key ", key.name),
                             .expected = concat(key.priority_least, " to ", key.priority_most),
                             .found = concat(request.priority)});
  return std::nullopt;
}

}  // namespace nibble
