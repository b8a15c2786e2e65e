// Bytes of media as they stand in requests: base64 (RFC 4648, strict), alone or in a data URL (RFC
// 2397). Nothing here fetches anything.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nibble {

/// The bytes of `text`: the standard alphabet, padding required, no white space. `bytes_max` is
/// held against the length before anything is allocated.
/// Errors: invalid_argument, with the limit or the position of the first wrong character. The text
/// itself is never repeated.
Result<std::vector<std::byte>> decode_base64(std::string_view text, size_t bytes_max);

struct DataUrl {
  std::string media_type;  // as declared, in lower case, without parameters; may be empty
  std::vector<std::byte> bytes;
};

/// True if `url` begins with "data:" in any case.
bool is_data_url(std::string_view url);

/// data:[TYPE][;PARAMETER=VALUE]...;base64,TEXT. The declared type is only handed on: what the
/// bytes are is for sniff_image_format to say. Errors: invalid_argument, as decode_base64's;
/// unsupported for a data URL that is not base64.
Result<DataUrl> parse_data_url(std::string_view url, size_t bytes_max);

}  // namespace nibble
