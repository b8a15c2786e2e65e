// Members are read by their types; what is not there or has another type is one error in words.
#include "hub/hub_replies.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "hub/hub_name.h"

namespace nibble {
namespace {

constexpr JsonLimits kLimits = {
    .bytes_max = kHubReplyBytesMax, .depth_max = 32, .duplicate_keys = DuplicateKeys::keep_last};
constexpr uint64_t kFileBytesMax = uint64_t{1} << 50;
constexpr size_t kEtagBytesMax = 128;

Error malformed(std::string_view what, std::string_view expected) {
  return make_error(
      ErrorCode::corrupt,
      {.what = concat("the hub's ", what), .expected = expected, .found = "something else"});
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

Result<std::string> parse_revision_reply(std::string_view text) {
  const Json reply = TRY(parse_json(text, "the hub's reply about the revision", kLimits));
  const Json* sha = reply.find("sha");
  if (sha == nullptr || !sha->is_string() || !is_hub_commit(sha->as_string()))
    return malformed("reply about the revision",
                     "the 40 hexadecimal digits of a commit as \"sha\"");
  return sha->as_string();
}

std::optional<std::string> parse_next_link(std::string_view header) {
  while (!header.empty()) {
    const size_t begin = header.find('<');
    const size_t end = header.find('>', begin);
    if (begin == header.npos || end == header.npos) return std::nullopt;
    const size_t comma = std::min(header.find(',', end), header.size());
    const std::string_view about = header.substr(end, comma - end);
    if (about.find("rel=\"next\"") != about.npos || about.find("rel=next") != about.npos)
      return std::string(header.substr(begin + 1, end - begin - 1));
    header.remove_prefix(std::min(comma + 1, header.size()));
  }
  return std::nullopt;
}

std::optional<uint64_t> parse_byte_count(std::string_view text) {
  text = trimmed(text);
  uint64_t value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || end.ec != std::errc() || end.ptr != text.data() + text.size() ||
      value > kFileBytesMax)
    return std::nullopt;
  return value;
}

std::optional<int64_t> parse_retry_after(std::string_view header) {
  const auto seconds = parse_byte_count(header);
  if (!seconds) return std::nullopt;
  return static_cast<int64_t>(*seconds);
}

Result<std::string> parse_etag(std::string_view header) {
  if (header.starts_with("W/")) header.remove_prefix(2);
  if (header.size() >= 2 && header.front() == '"' && header.back() == '"')
    header = header.substr(1, header.size() - 2);
  const bool fine = !header.empty() && header.size() <= kEtagBytesMax && header.front() != '.' &&
                    std::ranges::all_of(header, [](unsigned char c) {
                      return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
                    });
  if (fine) return std::string(header);
  return malformed("ETag", "a hash, or letters, digits and \"-_.\"");
}

std::optional<ContentRange> parse_content_range(std::string_view header) {
  constexpr std::string_view kUnit = "bytes ";
  if (!header.starts_with(kUnit)) return std::nullopt;
  header.remove_prefix(kUnit.size());
  const size_t dash = header.find('-');
  const size_t slash = header.find('/');
  if (dash == header.npos || slash == header.npos || slash < dash) return std::nullopt;
  const auto first = parse_byte_count(header.substr(0, dash));
  const auto last = parse_byte_count(header.substr(dash + 1, slash - dash - 1));
  const auto total = parse_byte_count(header.substr(slash + 1));
  if (!first || !last || !total || *last < *first || *last >= *total) return std::nullopt;
  return ContentRange{.begin = *first, .end = *last + 1, .total = *total};
}

std::string hub_error_words(std::string_view body) {
  const auto reply = parse_json(body, "error of the hub", kLimits);
  if (!reply.ok()) return {};
  const Json* error = reply.value().find("error");
  return error != nullptr && error->is_string() ? error->as_string() : std::string();
}

}  // namespace nibble
