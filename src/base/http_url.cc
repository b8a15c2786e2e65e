// Cuts a URL at its marks and refuses what is left over.
#include "base/http_url.h"

#include <charconv>

#include "base/json.h"

namespace nibble {

namespace {

Error bad_url(std::string_view url) {
  return make_error(ErrorCode::invalid_argument, {.what = "a URL",
                                                  .expected = "http://HOST[:PORT][/PATH]",
                                                  .found = Json(url.substr(0, 200)).dump()});
}

}  // namespace

Result<HttpUrl> parse_http_url(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  if (url.starts_with("https://"))
    return make_error(ErrorCode::unsupported,
                      {.what = "https is not spoken by this command", .found = url.substr(0, 200)});
  if (!url.starts_with(kScheme)) return bad_url(url);
  std::string_view rest = url.substr(kScheme.size());
  const size_t slash = rest.find('/');
  HttpUrl parsed{.path = std::string(slash == std::string_view::npos ? "/" : rest.substr(slash))};
  std::string_view host = rest.substr(0, slash);
  const size_t bracket = host.find(']');
  const size_t colon = host.find(':', bracket == std::string_view::npos ? 0 : bracket);
  if (colon != std::string_view::npos) {
    const std::string_view port = host.substr(colon + 1);
    const auto end = std::from_chars(port.data(), port.data() + port.size(), parsed.port);
    if (end.ec != std::errc() || end.ptr != port.data() + port.size()) return bad_url(url);
    host = host.substr(0, colon);
  }
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const bool odd = host.find_first_of(" @?#[]\r\n\t") != std::string_view::npos ||
                   url.find_first_of(" \r\n\t") != std::string_view::npos;
  if (host.empty() || odd) return bad_url(url);
  parsed.host = host;
  return parsed;
}

}  // namespace nibble
