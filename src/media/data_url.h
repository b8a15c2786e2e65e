// Bytes of media as they stand in requests: base64 (RFC 4648, strict), alone or in a data URL (RFC
// 2397). Nothing here fetches anything.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nibble {

/// The bytes of `text`: the standard alphabet, padding required, no white space. `bytes_max` is
/// held against the length before anything is allocated.
/// Errors: invalid_argument, with the limit or the position of the first wrong character. The text
/// itself is never repeated.
Result<std::vector<std::byte>> decode_base64(std::string_view text, size_t bytes_max);

/// True if `url` begins with "data:" in any case.
bool is_data_url(std::string_view url);

/// The bytes of data:[TYPE][;PARAMETER=VALUE]...;base64,TEXT. The declared type counts for nothing:
/// what the bytes are is for sniff_image_format to say. Errors: invalid_argument, as
/// decode_base64's; unsupported for a data URL that is not base64.
Result<std::vector<std::byte>> parse_data_url(std::string_view url, size_t bytes_max);

}  // namespace nibble
