// The fields that a request may have: those that the readers ask for, and those of the APIs that
// mean nothing here. For operators who want the others refused.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "base/json.h"
#include "server/request/generation_request.h"

namespace nibble {

/// Every field that a body of `api` may have at its top, ascending.
std::span<const std::string> known_fields(Api api);

/// The first member that is none of them, with the nearest known name; nothing: there is none.
std::optional<ApiError> unknown_field(Api api, const Json& body);

}  // namespace nibble
