// The parts of a URL of plain HTTP, for commands that ask a server. It opens no connection.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace nibble {

struct HttpUrl {
  std::string host;
  uint16_t port = 80;
  std::string path;  // "/" at least
};
/// "http://HOST[:PORT][/PATH]"; an IPv6 address in brackets. Errors: another form; https, which is
/// not spoken here (unsupported).
Result<HttpUrl> parse_http_url(std::string_view url);

}  // namespace nibble
