// A request's body as the log may have it: with what images are made of left out.
#pragma once

#include <string>
#include <string_view>

namespace nibble {

/// `body` with "[N characters]" in the place of base64: what follows "base64,", the text of a
/// member "data", and every other run of 128 characters of that alphabet. It need not be JSON.
std::string without_base64(std::string_view body);

}  // namespace nibble
