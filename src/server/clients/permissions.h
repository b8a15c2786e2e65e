// The rules of a key for a request that has been read: its profile, its priority.
#pragma once

#include <optional>

#include "server/clients/keys.h"
#include "server/request/generation_request.h"

namespace nibble {

/// 403, or nothing. A request that names no priority gets the nearest one its key may have. A key
/// with a list of profiles needs one of them: the model's own name has no rules to hold it.
std::optional<ApiError> forbidden(const KeyRules& key, GenerationRequest& request);

/// Says if a key may use a profile, or (empty) the model without one.
enum class Permission : uint8_t { denied, granted };
Permission may_use(const KeyRules& key, std::string_view profile);

}  // namespace nibble
