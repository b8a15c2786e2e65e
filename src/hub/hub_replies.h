// Readers of what the hub says: JSON bodies and headers, each with limits. Nothing here asks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace nibble {

/// Bytes of a JSON reply that are taken at most: a page of a tree has 1,000 rows.
inline constexpr uint64_t kHubReplyBytesMax = uint64_t{16} << 20;

/// The commit that a revision is, of GET /api/models/NAME/revision/REV.
Result<std::string> parse_revision_reply(std::string_view text);

/// The address of the next page in a Link header; nothing: this page is the last.
std::optional<std::string> parse_next_link(std::string_view header);

/// Seconds of a Retry-After header; nothing for a date or nonsense.
std::optional<int64_t> parse_retry_after(std::string_view header);

/// An ETag without its quotes. Errors: corrupt for one that cannot be the name of a file.
Result<std::string> parse_etag(std::string_view header);

struct ContentRange {
  uint64_t begin = 0;
  uint64_t end = 0;  // one past the last byte
  uint64_t total = 0;
};
/// "bytes 0-99/1000"; nothing for anything else.
std::optional<ContentRange> parse_content_range(std::string_view header);

/// A whole number of bytes in decimal; nothing for anything else.
std::optional<uint64_t> parse_byte_count(std::string_view text);

/// The words of {"error": "..."}; empty for anything else.
std::string hub_error_words(std::string_view body);

}  // namespace nibble
