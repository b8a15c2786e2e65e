// Characters alone decide: a body that breaks off in an image has to be logged too.
#include "server/images/logged_body.h"

#include "base/concat.h"

namespace nibble {

namespace {

constexpr size_t kRunMax = 127;  // characters; longer ones are no words

/// Characters of base64 and of its form for URLs, and the backslash that JSON may put before '/'
/// and within line ends.
bool is_coded(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' ||
         c == '/' || c == '=' || c == '-' || c == '_' || c == '\\' || c == '%';
}

/// True if text that ends so is followed by the value of a member "data" or by base64.
bool announces_data(std::string_view before) {
  if (before.ends_with("base64,")) return true;
  const auto skip = [&before](std::string_view characters) {
    const size_t last = before.find_last_not_of(characters);
    before = before.substr(0, last == std::string_view::npos ? 0 : last + 1);
  };
  if (!before.ends_with('"')) return false;
  before.remove_suffix(1);
  skip(" \t\r\n");
  if (!before.ends_with(':')) return false;
  before.remove_suffix(1);
  skip(" \t\r\n");
  return before.ends_with("\"data\"");
}

}  // namespace

std::string without_base64(std::string_view body) {
  std::string out;
  size_t at = 0;
  while (at < body.size()) {
    size_t end = at;
    while (end < body.size() && is_coded(body[end])) ++end;
    // The backslash of an escaped quotation mark is that mark's.
    if (end > at && end < body.size() && body[end] == '"' && body[end - 1] == '\\') --end;
    const size_t run = end - at;
    if (run > kRunMax || (run > 0 && announces_data(body.substr(0, at))))
      out += concat("[", run, " characters]");
    else
      out += body.substr(at, run);
    at = end;
    if (end < body.size() && body[end] == '\\') end += 2;
    while (end < body.size() && !is_coded(body[end])) ++end;
    out += body.substr(at, end - at);
    at = end;
  }
  return out;
}

}  // namespace nibble
