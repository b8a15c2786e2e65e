// Reads the value of a parameter that was written under the grammar of a call, where a string
// stands as it is and all else is JSON. Not for calls without a grammar: their schemas were not
// checked.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace nibble {

/// The JSON text of the value `text` of the parameter `name`: the reading, as JSON or as a string,
/// that `parameters`, the schema of them all, allows; JSON where both are. Nothing, if neither is.
std::optional<std::string> call_value(const Json& parameters, const std::string& name,
                                      std::string_view text);

}  // namespace nibble
