// libcurl parses, tables of networks decide.
#include "server/images/image_address.h"

#include <curl/curl.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>

#include "server/http/client_address.h"

namespace nibble {

namespace {

constexpr size_t kUrlBytesMax = 8192;
constexpr uint16_t kSecurePort = 443;
constexpr uint16_t kPlainPort = 80;

using Url = std::unique_ptr<CURLU, decltype(&curl_url_cleanup)>;

std::optional<std::string> part_of(const Url& url, CURLUPart part) {
  char* text = nullptr;
  const unsigned flags = part == CURLUPART_PORT ? CURLU_DEFAULT_PORT : 0U;
  if (curl_url_get(url.get(), part, &text, flags) != CURLUE_OK) return std::nullopt;
  std::string copy(text);
  curl_free(text);
  return copy;
}

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  return text;
}

Error no_address(std::string_view expected, std::string_view found) {
  return make_error(ErrorCode::invalid_argument,
                    {.what = "its address", .expected = expected, .found = found});
}

Result<ImageAddress> address_of(const Url& url) {
  if (part_of(url, CURLUPART_USER) || part_of(url, CURLUPART_PASSWORD))
    return no_address("no user name and no password", "some");
  curl_url_set(url.get(), CURLUPART_FRAGMENT, nullptr, 0);
  const auto whole = part_of(url, CURLUPART_URL);
  const auto scheme = part_of(url, CURLUPART_SCHEME);
  const auto host = part_of(url, CURLUPART_HOST);
  const auto port = part_of(url, CURLUPART_PORT);
  if (scheme && *scheme != "https" && *scheme != "http")
    return no_address("https", "another scheme");
  if (!whole || !scheme || !host || !port || host->empty())
    return no_address("https://HOST/...", "another form");
  ImageAddress address{.url = *whole, .secure = *scheme == "https", .host = lower(*host)};
  std::from_chars(port->data(), port->data() + port->size(), address.port);
  if (address.host.starts_with('[') && address.host.ends_with(']'))
    address.host = address.host.substr(1, address.host.size() - 2);
  while (address.host.ends_with('.')) address.host.pop_back();  // the root's dot
  return address;
}

constexpr std::string_view kNotPublic[] = {
    "0.0.0.0/8",         "10.0.0.0/8",     "100.64.0.0/10",   "127.0.0.0/8",     "169.254.0.0/16",
    "172.16.0.0/12",     "192.0.0.0/24",   "192.0.2.0/24",    "192.31.196.0/24", "192.52.193.0/24",
    "192.88.99.0/24",    "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15",   "198.51.100.0/24",
    "203.0.113.0/24",    "224.0.0.0/4",    "240.0.0.0/4",
    "2001::/23",          // protocols, Teredo
    "2001:db8::/32",      // documentation
    "2002::/16",          // 6to4
    "2620:4f:8000::/48",  // a sink
    "3fff::/20"};         // documentation
/// No other address of IPv6 is one of the public internet.
constexpr std::string_view kUnicast = "2000::/3";

bool contains(std::string_view range, const ClientAddress& address) {
  return AddressRange::parse(range).value().contains(address);
}

bool is_name(std::string_view text) {
  return !text.empty() &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-.") == std::string_view::npos;
}

}  // namespace

Result<ImageAddress> parse_image_address(const std::string& text) {
  if (text.size() > kUrlBytesMax)
    return no_address(concat("at most ", kUrlBytesMax, " bytes"), concat(text.size()));
  const Url url(curl_url(), &curl_url_cleanup);
  if (curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK)
    return no_address("https://HOST/...", "another form");
  return address_of(url);
}

Result<ImageAddress> redirected(const ImageAddress& base, const std::string& location) {
  if (location.size() > kUrlBytesMax)
    return no_address(concat("at most ", kUrlBytesMax, " bytes"), concat(location.size()));
  const Url url(curl_url(), &curl_url_cleanup);
  const bool read = curl_url_set(url.get(), CURLUPART_URL, base.url.c_str(), 0) == CURLUE_OK &&
                    curl_url_set(url.get(), CURLUPART_URL, location.c_str(), 0) == CURLUE_OK;
  if (!read) return no_address("a redirect to https://HOST/...", "another form");
  return address_of(url);
}

bool is_public_address(std::string_view numeric) {
  const auto address = ClientAddress::parse(numeric);
  if (!address) return false;
  // IPv4 within IPv6 reads as IPv4; nobody has to write it so.
  if (!address->v6 && numeric.find(':') != std::string_view::npos) return false;
  if (address->v6 && !contains(kUnicast, *address)) return false;
  return std::ranges::none_of(kNotPublic,
                              [&](std::string_view range) { return contains(range, *address); });
}

Result<ImageHosts> ImageHosts::parse(const std::vector<std::string>& names, Plain plain) {
  ImageHosts hosts;
  hosts.plain_ = plain;
  for (const std::string& name : names) {
    Entry entry;
    std::string rest = lower(name);
    if (const size_t colon = rest.find(':'); colon != std::string::npos) {
      const char* end = rest.data() + rest.size();
      const auto read = std::from_chars(rest.data() + colon + 1, end, entry.port);
      if (read.ptr != end || entry.port == 0) entry.host.clear(), rest.clear();
      rest = rest.substr(0, std::min(colon, rest.size()));
    }
    entry.subdomains = rest.starts_with("*.");
    entry.host = entry.subdomains ? rest.substr(2) : rest;
    if (!is_name(entry.host))
      return make_error(ErrorCode::invalid_argument,
                        {.what = "a host to fetch images from",
                         .expected = "example.org, *.example.org or example.org:8443",
                         .found = concat("\"", name, "\"")});
    hosts.entries_.push_back(std::move(entry));
  }
  return hosts;
}

Result<void> ImageHosts::check(const ImageAddress& address) const {
  if (!address.secure && plain_ == Plain::refused) return no_address("https", "http");
  const uint16_t own = address.secure ? kSecurePort : kPlainPort;
  const auto fits = [&](const Entry& entry) {
    if (address.port != (entry.port == 0 ? own : entry.port)) return false;
    return entry.subdomains ? address.host.ends_with("." + entry.host) : address.host == entry.host;
  };
  if (std::ranges::any_of(entries_, fits)) return {};
  constexpr size_t kShown = 100;
  return no_address("a host of --allowed-media-domains",
                    concat("\"", address.host.substr(0, kShown), "\" with port ", address.port));
}

}  // namespace nibble
