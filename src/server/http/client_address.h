// Addresses of clients: ranges of them, whom a request of a proxy is from, and which addresses
// count as one client. No I/O.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace nibble {

/// An IPv4 or IPv6 address. IPv4 within IPv6 ("::ffff:10.0.0.1") is IPv4.
struct ClientAddress {
  std::array<uint8_t, 16> bytes = {};  // IPv4: the first four
  bool v6 = false;

  /// Nothing: `text` is no address.
  static std::optional<ClientAddress> parse(std::string_view text);
  bool operator==(const ClientAddress&) const = default;
};

/// A range in the notation of RFC 4632: "10.0.0.0/8", "2001:db8::/32", or one address.
struct AddressRange {
  ClientAddress first;
  int bits = 0;  // at the front, which every address of the range has

  /// Errors: invalid_argument, without the flag's name.
  static Result<AddressRange> parse(std::string_view text);
  bool contains(const ClientAddress& address) const;
};

bool is_trusted(std::string_view address, std::span<const AddressRange> proxies);

/// Whom a request is from: the peer, or where that is a trusted proxy the nearest address of its
/// X-Forwarded-For that is none. Others can write what they like there.
std::string client_behind(std::string_view peer, std::string_view forwarded_for,
                          std::span<const AddressRange> proxies);

/// A name for those who count as one client: an IPv4 address, the /64 of an IPv6 address, which one
/// customer of a network has whole. Text that is no address stands for itself.
std::string client_group(std::string_view address);

/// 127.0.0.0/8 and ::1.
bool is_loopback(std::string_view address);

}  // namespace nibble
