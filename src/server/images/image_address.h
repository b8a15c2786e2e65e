// Addresses of images that this server may fetch: which hosts, which schemes, which networks. It
// opens no connection; image_fetcher.h does. Source of the networks: IANA's registries of
// special-purpose addresses, https://www.iana.org/assignments/iana-ipv4-special-registry and
// https://www.iana.org/assignments/iana-ipv6-special-registry.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nibble {

/// A URL's parts as libcurl reads them, which fetches it too: no two readings of one text.
struct ImageAddress {
  std::string url;     // the URL that libcurl writes, without a fragment
  bool secure = true;  // https
  std::string host;    // in lower case, IPv6 without brackets
  uint16_t port = 443;
};

/// Errors: invalid_argument for other schemes than https and http, for user names and passwords,
/// and for what is no URL.
Result<ImageAddress> parse_image_address(const std::string& url);
/// Reads where a redirect from `base` leads.
Result<ImageAddress> redirected(const ImageAddress& base, const std::string& location);

/// True if a numeric address is one of the public internet: not of this machine, a private network,
/// a link, a group, a documentation or a translated or tunnelled form of another address.
bool is_public_address(std::string_view numeric);

/// The hosts that images are fetched from: "example.org", "*.example.org" (its subdomains),
/// "example.org:8443". Without a port the scheme's own alone.
class ImageHosts {
 public:
  enum class Plain : uint8_t { refused, taken };  // http beside https
  ImageHosts() = default;
  /// Errors: invalid_argument for an entry that is no such name.
  static Result<ImageHosts> parse(const std::vector<std::string>& names, Plain plain);
  bool empty() const { return entries_.empty(); }
  /// Errors: invalid_argument, which names the scheme or the host.
  Result<void> check(const ImageAddress& address) const;

 private:
  struct Entry {
    std::string host;         // "example.org"
    bool subdomains = false;  // its subdomains, instead of itself
    uint16_t port = 0;        // 0: the scheme's own
  };
  std::vector<Entry> entries_;
  Plain plain_ = Plain::refused;
};

}  // namespace nibble
