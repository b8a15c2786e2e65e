// Names compare without case, ports with the default of their scheme.
#include "server/http/site_rules.h"

#include <algorithm>

#include "server/http/client_address.h"

namespace nibble {

namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return out;
}

/// "[::1]:80" as "[::1]" and "80".
struct HostPort {
  std::string_view host, port;
};
HostPort split(std::string_view text) {
  const size_t bracket = text.rfind(']');
  const size_t colon = text.find(':', bracket == std::string_view::npos ? 0 : bracket);
  if (colon == std::string_view::npos) return {.host = text, .port = {}};
  return {.host = text.substr(0, colon), .port = text.substr(colon + 1)};
}

bool names_this_machine(std::string_view host) {
  while (host.ends_with('.')) host.remove_suffix(1);  // the root of names, which browsers keep
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const std::string name = lower(host);
  return name == "localhost" || name.ends_with(".localhost") || is_loopback(name);
}

/// True if a page of `origin` is this server's own: the same host and port.
bool same_site(std::string_view origin, std::string_view host) {
  const size_t scheme = origin.find("://");
  if (scheme == std::string_view::npos) return false;
  const std::string_view standard = lower(origin.substr(0, scheme)) == "https" ? "443" : "80";
  const auto port = [&](const HostPort& place) {
    return place.port.empty() ? standard : place.port;
  };
  const HostPort theirs = split(origin.substr(scheme + 3)), ours = split(host);
  return lower(theirs.host) == lower(ours.host) && port(theirs) == port(ours);
}

bool is_probe(std::string_view path) {
  return path == "/health" || path == "/ready" || path == "/live";
}

bool only_reads(std::string_view method) {
  return method == "GET" || method == "HEAD" || method == "OPTIONS";
}

ApiError refusal(std::string_view what, std::string_view flag, std::string_view found,
                 std::string_view code) {
  return {.status = 403,
          .type = "permission_error",
          .message =
              concat(what, ", found ", Json(found.substr(0, 100)).dump(),
                     "; if that is meant, start the server with ", flag, " ", found.substr(0, 100)),
          .code = std::string(code)};
}

}  // namespace

bool SiteRules::is_ours(std::string_view host) const {
  if (names_ == LocalNames::any && options_.hosts.empty()) return true;
  const std::string_view name = split(host).host;
  if (names_this_machine(name)) return true;
  return std::ranges::any_of(options_.hosts, [&](const std::string& listed) {
    return listed == "*" || lower(listed) == lower(host) || lower(listed) == lower(name);
  });
}

bool SiteRules::may_change(const HttpRequest& request, std::string_view origin) const {
  if (same_site(origin, request.header("host"))) return true;
  return std::ranges::any_of(options_.origins, [&](const std::string& listed) {
    return listed == "*" || lower(listed) == lower(origin);
  });
}

std::optional<ApiError> SiteRules::refusal_of(const HttpRequest& request) const {
  const bool local = request.client.empty();  // a Unix socket, or no socket: no page can reach it
  const std::string_view host = request.header("host"), origin = request.header("origin");
  if (!local && !is_probe(request.path) && !host.empty() && !is_ours(host))
    return refusal("Host: expected a name of this machine", "--allowed-hosts", split(host).host,
                   "host_not_allowed");
  if (!origin.empty() && !only_reads(request.method) && !may_change(request, origin))
    return refusal("Origin: expected this server's own pages", "--allowed-origins", origin,
                   "origin_not_allowed");
  return std::nullopt;
}

}  // namespace nibble
