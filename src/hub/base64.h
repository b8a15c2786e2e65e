// Base64 (RFC 4648, with padding), in which the hub wants small files.
#pragma once

#include <string>
#include <string_view>

namespace nibble {

/// At most 1 GiB of bytes.
std::string base64(std::string_view bytes);

}  // namespace nibble
